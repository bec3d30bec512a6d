update task_steps
set progress = :progress
where task_id = :task_id and step = :step and part = :part and attempt = :attempt
