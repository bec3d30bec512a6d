-- Differs: casts json to text, because drivers decode json differently.
select state, result::text, error
from stagepost_job_history
where id = :id
union all
select state, null, null
from stagepost_job
where id = :id
