select id, task_name, limit_slots
from stagepost_job
where blocked_on = :name and state = 'blocked'
order by priority desc, available_at, id
limit :most
