-- Differs: casts json to text, because drivers decode json differently.
select
    id, task_name, queue_name, state, priority, attempts, failures, crashes, max_attempts, unique_key, limit_key,
    blocked_on, batch_id, item_key,
    payload::text, context::text, available_at, lease_until, locked_by, cancel_requested_at, created_at, updated_at, started_at,
    null, null, null, progress::text
from stagepost_job
where id = :id
