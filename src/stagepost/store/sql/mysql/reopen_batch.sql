-- Differs: forces the primary key, because a search by another index also locks its entries and the gaps between them.
-- Forgets the counts of deleted items: if they are submitted again, they are new jobs.
-- Keeps `done_at`: items that ended before it belong to an earlier run of the parent.
update stagepost_batch force index (primary)
set state = 'open',
    sealed_at = null,
    cancelled_at = null,
    outcome = null,
    updated_at = :now
where id = :id
  and state = 'done'
;
delete from stagepost_move
where scope = :removed_scope
;
delete from stagepost_count
where scope = :removed_scope
