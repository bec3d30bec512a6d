update stagepost_schedule
set paused_at = coalesce(paused_at, :now), updated_at = :now
where name = :name
