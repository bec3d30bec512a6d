select
    name, task_name, rule, time_zone, catch_up, template, next_due_at, last_due_at, orphaned_at, paused_at, held_until,
    error
from stagepost_schedule
order by name
