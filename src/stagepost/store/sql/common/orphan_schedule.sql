update stagepost_schedule
set orphaned_at = :now
where name = :name
  and orphaned_at is null and declared_at < :now - :older_us
