select state, count(*)
from stagepost_job
group by state
union all
select state, count(*)
from stagepost_job_history
group by state
