-- Differs: by the primary key only: with another index, its entries and the gaps between them are locked.
-- Items whose rows were removed while it was done are counted no more: those that are submitted again are new jobs.
-- `done_at` stays: what ended before belongs to an earlier run of the parent.
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
