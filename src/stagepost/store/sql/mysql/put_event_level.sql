-- Differs: no ON CONFLICT.
insert into stagepost_event_level (task_name, level)
values (:task_name, :level)
on duplicate key update level = :level
