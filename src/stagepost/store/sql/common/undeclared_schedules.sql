select name
from stagepost_schedule
where orphaned_at is null
  and declared_at < :now - :older_us
order by name
