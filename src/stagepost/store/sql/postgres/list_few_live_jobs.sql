-- Differs: materialized, so that the planner uses the index on the state and does not scan all jobs by id.
with few as materialized (
    select *
    from stagepost_job
    where true
    [[and state = 'queued' and sent_at is null and :queued = 1]]
    [[and sent_at > 0 and :sent = 1]]
    [[and state = 'running' and :running = 1]]
    [[and state in ('retrying', 'scheduled') and state = :due]]
    [[and state = 'blocked' and blocked_on is not null and :blocked = 1]]
    [[and queue_name = :queue_name]]
    [[and (task_name = :task_name or strpos(context::text, :first_task) > 0)]]
)
select
    id, task_name, queue_name, state, priority, attempts, failures, crashes, max_attempts, unique_key, limit_key,
    blocked_on, batch_id, item_key,
    payload::text, context::text, available_at, lease_until, locked_by, cancel_requested_at, created_at, updated_at, started_at,
    null, null, null, progress::text
from few
where id < :before
order by id desc
limit :most
