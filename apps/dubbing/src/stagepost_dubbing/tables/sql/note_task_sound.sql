update tasks
set duration_ms = :duration_ms, speech_db = :speech_db, updated_at = now_us()
where id = :id
