delete from stagepost_dead_message
where received_at <= :until
