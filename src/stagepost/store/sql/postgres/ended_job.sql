-- Differs: casts json to text, because drivers decode json differently.
select
    id, task_name, queue_name, state, priority, attempts, failures, crashes, max_attempts, unique_key, limit_key,
    null, batch_id, item_key,
    payload::text, context::text, available_at, null, processed_by, null, created_at, finished_at, started_at,
    finished_at, result::text, error, null
from stagepost_job_history
where id = :id
