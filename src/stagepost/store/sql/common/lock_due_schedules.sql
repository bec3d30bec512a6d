-- Least recently fired first, so that a schedule with thousands of due times to catch up on does not delay the others.
-- Chooses first and locks afterwards, because MySQL would lock every row it sorts.
select
    schedule.name, task_name, rule, time_zone, catch_up, template, next_due_at, last_due_at, orphaned_at, paused_at, held_until,
    error, next_due_at - :now
from (
    select name
    from stagepost_schedule
    where next_due_at <= :now
      and orphaned_at is null
      and paused_at is null
      and (held_until is null or held_until <= :now)
    order by coalesce(fired_at, 0), next_due_at, name
    limit :most
) as chosen
join stagepost_schedule as schedule on schedule.name = chosen.name
where next_due_at <= :now
  and orphaned_at is null
  and paused_at is null
  and (held_until is null or held_until <= :now)
order by coalesce(fired_at, 0), next_due_at, schedule.name
for update skip locked
