update tasks
set duration_ms = :duration_ms, updated_at = now_us()
where id = :id
