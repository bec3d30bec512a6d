-- Differs: ids come through json_each.
select job.id, job.task_name, job.payload
from json_each(:ids) as asked
join stagepost_job as job on job.id = asked.value
union all
select ended.id, ended.task_name, ended.payload
from json_each(:ids) as asked
join stagepost_job_history as ended on ended.id = asked.value
