delete from stagepost_channel
where coalesce(looked_at, carried_since) < :now - :silent_us
