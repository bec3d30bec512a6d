-- Differs: one writer at a time needs no row locks; rows come through json_each.
update stagepost_job
set state = 'running',
    attempts = attempts + 1,
    locked_by = :owner,
    lease_until = :now,
    started_at = coalesce(sent_at, :now),
    sent_at = null,
    cancel_requested_at = null,
    updated_at = :now
from json_each(:answers) as answer
where stagepost_job.id = answer.value ->> 'id'
  and task_name in (select value from json_each(:task_names))
  and state = 'queued' and attempts = (answer.value ->> 'attempt') - 1
returning
    stagepost_job.id, task_name, queue_name, attempts, failures, crashes, max_attempts, priority,
    created_at, available_at, payload, context, limit_key, batch_id, locked_by,
    blocked_on
