delete from stagepost_outbox
where id = :id
