-- Differs: forces the primary key, because a search by another index also locks its entries and the gaps between them.
update stagepost_job force index (primary)
set cancel_requested_at = :now
where id = :id
  and state = 'running'
