-- Differs: rows come through json_each.
select job.id, job.id
from json_each(:jobs) as asked
join stagepost_job as job on job.id = asked.value ->> 'id'
union all
select asked.value ->> 'id', job.id
from json_each(:jobs) as asked
join stagepost_job as job on job.unique_key = asked.value ->> 'unique_key'
union all
select ended.id, ended.id
from json_each(:jobs) as asked
join stagepost_job_history as ended on ended.id = asked.value ->> 'id'
