delete from stagepost_schedule
where name = :name
