update stagepost_job
set has_children = 1
where id = :id
