delete from stagepost_event_level
where task_name = :task_name
