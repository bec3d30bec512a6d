update tasks
set run_id = :run_id, revision = :revision, status = 'queued', error = null, finished_at = null, updated_at = now_us()
where id = :id
