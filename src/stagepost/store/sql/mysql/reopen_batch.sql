-- Differs: by the primary key only: with another index, its entries and the gaps between them are locked.
-- `done_at` stays: what ended before belongs to an earlier run of the parent.
update stagepost_batch force index (primary)
set state = 'open',
    sealed_at = null,
    cancelled_at = null,
    outcome = null,
    updated_at = :now
where id = :id
  and state = 'done'
