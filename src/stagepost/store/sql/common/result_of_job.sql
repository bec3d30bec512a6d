-- One statement: between two, a job could move from one table to the other and be seen in neither.
select state, result, error
from stagepost_job_history
where id = :id
union all
select state, null, null
from stagepost_job
where id = :id
