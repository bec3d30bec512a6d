update stagepost_batch
set state = 'done',
    outcome = :outcome,
    done_at = :now,
    updated_at = :now
where id = :id
  and state = 'sealed'
