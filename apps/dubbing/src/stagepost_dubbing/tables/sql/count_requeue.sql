update tasks
set requeues = requeues + 1
where id = :id
