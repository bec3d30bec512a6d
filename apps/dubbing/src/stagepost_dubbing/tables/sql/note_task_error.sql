update tasks
set error = :error, updated_at = now_us()
where id = :id
