delete from stagepost_run
where id = :id
