update task_steps
set status = 'stale'
where task_id = :task_id and step = :step
  and status = 'succeeded'
