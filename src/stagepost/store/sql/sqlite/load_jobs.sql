-- Differs: runs one prepared statement for each row; skips jobs that exist.
insert or ignore into stagepost_job (
    id, payload, item_key, queue_name, task_name, state, priority, available_at, attempts, failures, crashes,
    max_attempts, limit_key, limit_slots, blocked_on, batch_id, context, created_at, updated_at
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
