-- Differs: states come through json_array_elements_text.
select
    id, task_name, queue_name, state, priority, attempts, failures, crashes, max_attempts, unique_key, limit_key,
    blocked_on, batch_id, item_key,
    payload::text, context::text, available_at, lease_until, locked_by, cancel_requested_at, created_at, updated_at, started_at,
    null, null, null, progress::text
from stagepost_job
where id < :before and id >= :until
  and state in (select json_array_elements_text(:states::text::json))
  [[and queue_name = :queue_name]]
  [[and (task_name = :task_name or strpos(context::text, :first_task) > 0)]]
  [[and batch_id = :batch_id and id between :first_id and :last_id]]
order by id desc
limit :most
