-- What was due while nobody declared it is for its rule about missed due times: `next_due_at` stays.
update stagepost_schedule
set declared_at = :now, orphaned_at = null
where name = :name
  and (orphaned_at is not null or declared_at is null or declared_at < :now - :fresh_us)
