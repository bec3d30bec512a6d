-- Differs: looks for the batch without a lock first, because locking a missing row would lock the gap, and most jobs
-- have no children. Forces the primary key, because a search by another index also locks its entries and their gaps.
select id
from stagepost_batch
where id = :id
;
update stagepost_batch force index (primary)
set cancelled_at = :now,
    updated_at = :now
where id = :id
  and cancelled_at is null
  and state <> 'done' and :selected <> ''
