-- Differs: forces the primary key, because a search by another index also locks its entries and the gaps between them.
update stagepost_batch force index (primary)
set state = 'done',
    outcome = :outcome,
    done_at = :now,
    updated_at = :now
where id = :id
  and state = 'sealed'
