select
    id, task_name, queue_name, state, priority, attempts, failures, crashes, max_attempts, unique_key, limit_key,
    null, batch_id, item_key,
    payload, context, available_at, null, processed_by, null, created_at, finished_at, started_at,
    finished_at, result, error, null
from stagepost_job_history
where id = :id
