update stagepost_batch
set state = 'sealed',
    sealed_at = :now,
    updated_at = :now
where id = :id
  and state = 'open'
