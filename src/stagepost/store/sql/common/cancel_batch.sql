update stagepost_batch
set cancelled_at = :now,
    updated_at = :now
where id = :id
  and cancelled_at is null
  and state <> 'done'
