-- One statement: between two, a job could move to the other table and be found in neither.
select state, result, error
from stagepost_job_history
where id = :id
union all
select state, null, null
from stagepost_job
where id = :id
