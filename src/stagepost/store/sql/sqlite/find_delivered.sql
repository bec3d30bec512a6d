-- Differs: ids come through json_each.
select job.id, job.state, job.attempts, job.task_name
from json_each(:ids) as picked
join stagepost_job as job on job.id = picked.value
