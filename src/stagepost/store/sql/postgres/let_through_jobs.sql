-- Differs: locks, marks and returns in one statement; rows come through json_to_recordset. A transaction that has
-- locked a limit waits for no job, so there are no deadlocks.
with picked as (
    select job.id, asked.due_at
    from json_to_recordset(:jobs::text::json) as asked (id uuid, due_at bigint)
    join stagepost_job as job on job.id = asked.id
    where job.state = 'blocked'
    for update of job skip locked
)
update stagepost_job as job
set state = case when picked.due_at > :now then 'scheduled' else 'queued' end,
    available_at = case when picked.due_at > :now then picked.due_at else job.available_at end,
    blocked_on = case when :forgets::integer = 1 then null else job.blocked_on end,
    updated_at = :now
from picked
where job.id = picked.id
returning job.id, job.queue_name, job.batch_id, job.state
