select name
from stagepost_schedule
where orphaned_at is not null or declared_at is null or declared_at < :now - :fresh_us
order by name
