update stagepost_channel
set resent_at = :now
where queue_name = :queue_name
