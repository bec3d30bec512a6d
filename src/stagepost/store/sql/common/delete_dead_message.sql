delete from stagepost_dead_message
where id = :id
