-- Differs: no ON CONFLICT.
insert into stagepost_schedule (
    name, task_name, rule, time_zone, catch_up, template, next_due_at, declared_at, updated_at
)
values (:name, :task_name, :rule, :time_zone, :catch_up, :template, :next_due_at, :now, :now)
on duplicate key update name = stagepost_schedule.name
