select
    name, task_name, rule, time_zone, catch_up, template, next_due_at, last_due_at, paused_at, held_until, error,
    next_due_at - :now
from stagepost_schedule
where next_due_at <= :now
  and paused_at is null
  and (held_until is null or held_until <= :now)
order by next_due_at, name
limit :most
for update skip locked
