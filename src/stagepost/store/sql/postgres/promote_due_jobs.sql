-- Differs: locks, marks and returns in one statement.
with due as (
    select id, state
    from stagepost_job
    where state in ('retrying', 'scheduled')
      and available_at <= :now
    order by available_at
    limit :most
    for update skip locked
)
update stagepost_job as job
set state = case when job.limit_slots is null then 'queued' else 'blocked' end,
    blocked_on = case when job.limit_slots is null then job.blocked_on else 'limit:' || job.limit_key end,
    updated_at = :now
from due
where job.id = due.id
returning job.id, job.queue_name, job.batch_id, due.state, job.state
