delete from stagepost_event
where position <= :until
