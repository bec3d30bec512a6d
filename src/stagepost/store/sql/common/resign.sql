-- The row stays, so that its term number goes on growing.
update stagepost_leader
set expires_at = 0
where name = :name
  and owner = :owner
