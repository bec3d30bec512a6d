update task_steps
set status = :status, error = :error, finished_at = now_us(),
    progress = case when :status = 'succeeded' then 1 else progress end
where task_id = :task_id and step = :step and part = :part and attempt = :attempt
  and status = 'running'
