insert into stagepost_event_level (task_name, level)
values (:task_name, :level)
on conflict (task_name) do update
set level = excluded.level
