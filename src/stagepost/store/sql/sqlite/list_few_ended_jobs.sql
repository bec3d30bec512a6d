-- Differs: forces the index on the state, because the planner may scan all jobs by id instead.
select
    id, task_name, queue_name, state, priority, attempts, failures, crashes, max_attempts, unique_key, limit_key,
    null, batch_id, item_key,
    payload, context, available_at, null, processed_by, null, created_at, finished_at, started_at,
    finished_at, result, error, null
from stagepost_job_history indexed by stagepost_job_history_ended
where id < :before
  and state = :state
  [[and queue_name = :queue_name]]
  [[and (task_name = :task_name or instr(context, :first_task) > 0)]]
order by id desc
limit :most
