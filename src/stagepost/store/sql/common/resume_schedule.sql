update stagepost_schedule
set paused_at = null, next_due_at = :next_due_at, updated_at = :now
where name = :name
