-- Differs: by the primary key only: with another index, its entries and the gaps between them are locked.
update stagepost_job force index (primary)
set cancel_requested_at = :now
where id = :id
  and state = 'running'
