delete from segments
where task_id = :task_id
