update stagepost_job
set cancel_requested_at = :now,
    updated_at = :now
where id between :first_id and :last_id
  and batch_id = :batch_id
  and state = 'running'
  and cancel_requested_at is null
