update stagepost_job
set cancel_requested_at = :now
where id = :id
  and state = 'running'
