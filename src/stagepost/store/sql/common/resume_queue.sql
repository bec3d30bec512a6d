update stagepost_queue
set paused_at = null, updated_at = :now
where name = :name
