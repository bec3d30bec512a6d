-- Keeps `next_due_at`, so that `catch_up` decides about due times missed while no worker declared the schedule.
update stagepost_schedule
set declared_at = :now, orphaned_at = null
where name = :name
  and (orphaned_at is not null or declared_at is null or declared_at < :now - :fresh_us)
