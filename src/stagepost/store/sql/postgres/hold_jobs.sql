-- Differs: locks, marks and returns in one statement; rows come through json_to_recordset. A transaction that has
-- locked a limit waits for no job, so there are no deadlocks.
with picked as (
    select job.id, asked.blocked_on, asked.limit_key
    from json_to_recordset(:jobs::text::json) as asked (id uuid, attempt integer, blocked_on text, limit_key text)
    join stagepost_job as job on job.id = asked.id
    where job.state in ('queued', 'running') and job.sent_at is null
      and job.attempts = asked.attempt and coalesce(job.locked_by, '') = :owner
    for update of job skip locked
)
update stagepost_job as job
set state = 'blocked',
    blocked_on = picked.blocked_on,
    limit_key = picked.limit_key,
    attempts = case when job.state = 'running' then job.attempts - 1 else job.attempts end,
    started_at = case when job.state = 'running' then null else job.started_at end,
    lease_until = null,
    locked_by = null,
    updated_at = :now
from picked
where job.id = picked.id
returning job.id, job.queue_name, job.batch_id
