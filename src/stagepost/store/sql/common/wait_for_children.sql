update stagepost_job
set state = 'waiting',
    failures = failures + :failures,
    crashes = crashes + :crashes,
    lease_until = null,
    locked_by = null,
    progress = null,
    updated_at = :now
where id = :id
  and attempts = :attempt
