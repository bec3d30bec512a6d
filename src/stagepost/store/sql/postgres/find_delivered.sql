-- Differs: ids come through json_array_elements_text.
select job.id, job.state, job.attempts, job.task_name
from json_array_elements_text(:ids::text::json) as picked (id)
join stagepost_job as job on job.id = picked.id::uuid
