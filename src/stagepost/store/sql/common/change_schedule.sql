update stagepost_schedule
set task_name = :task_name,
    rule = :rule,
    time_zone = :time_zone,
    catch_up = :catch_up,
    template = :template,
    next_due_at = :next_due_at,
    held_until = null,
    error = null,
    updated_at = :now
where name = :name
