update stagepost_queue
set paused_at = coalesce(paused_at, :now), updated_at = :now
where name = :name
