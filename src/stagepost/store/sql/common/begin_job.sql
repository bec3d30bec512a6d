update stagepost_job
set started_at = :now,
    updated_at = :now
where id = :id and attempts = :attempt and locked_by = :owner and state = 'running'
