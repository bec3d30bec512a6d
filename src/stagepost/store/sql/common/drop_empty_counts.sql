delete from stagepost_count
where jobs = 0
