delete from stagepost_worker
where id = :id
