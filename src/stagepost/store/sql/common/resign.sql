-- Keeps the row, so that its term number continues to grow.
update stagepost_leader
set expires_at = 0
where name = :name
  and owner = :owner
