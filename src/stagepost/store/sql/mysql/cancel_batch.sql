-- Differs: looks without a lock whether there is one: most jobs have no children, and a lock on what is not there would
-- be one on the gap. By the primary key only: with another index, its entries and the gaps between them are locked.
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
