select min(next_due_at) - :now
from stagepost_schedule
where paused_at is null
  and orphaned_at is null
  and (held_until is null or held_until <= :now)
