update stagepost_channel
set active_at = :now
where queue_name = :queue_name
