-- Differs: by the primary key only: with another index, its entries and the gaps between them are locked.
update stagepost_batch force index (primary)
set state = 'done',
    outcome = :outcome,
    done_at = :now,
    updated_at = :now
where id = :id
  and state = 'sealed'
