-- Differs: forces the index on the state, because the planner may scan all jobs by id instead.
select
    id, task_name, queue_name, state, priority, attempts, failures, crashes, max_attempts, unique_key, limit_key,
    blocked_on, batch_id, item_key,
    payload, context, available_at, lease_until, locked_by, cancel_requested_at, created_at, updated_at, started_at,
    null, null, null, progress
from stagepost_job force index (stagepost_job_claim)
where id < :before
  and state = :state
  [[and sent_at is null and :queued = 1]]
  [[and sent_at > 0 and :sent = 1]]
  [[and queue_name = :queue_name]]
  [[and (task_name = :task_name or instr(context, :first_task) > 0)]]
order by id desc
limit :most
