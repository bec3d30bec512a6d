-- Differs: ids come through json_each.
select job.unique_key, job.id, ended.id
from stagepost_job_history as ended
join stagepost_job as job on job.unique_key = ended.unique_key
where ended.id in (select value from json_each(:ids))
