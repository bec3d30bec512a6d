-- Differs: searches the JSON for the state, because a join with the states would sort the whole table.
select
    id, task_name, queue_name, state, priority, attempts, failures, crashes, max_attempts, unique_key, limit_key,
    null, batch_id, item_key,
    payload, context, available_at, null, processed_by, null, created_at, finished_at, started_at,
    finished_at, result, error, null
from stagepost_job_history
where id < :before and id >= :until
  and json_contains(:states, json_quote(state))
  [[and queue_name = :queue_name]]
  [[and (task_name = :task_name or instr(context, :first_task) > 0)]]
  [[and batch_id = :batch_id and id between :first_id and :last_id]]
order by id desc
limit :most
