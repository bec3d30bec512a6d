-- Differs: no partial indexes, so the index has a column of its own for states.
select id, task_name, limit_slots
from stagepost_job
where blocked_on = :name and blocked_state = 'blocked'
order by priority desc, available_at, id
limit :most
