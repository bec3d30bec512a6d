-- Differs: ids come through json_array_elements_text; json is read as text.
select job.id, job.task_name, job.payload::text
from json_array_elements_text(:ids::text::json) as asked
join stagepost_job as job on job.id = asked::uuid
union all
select ended.id, ended.task_name, ended.payload::text
from json_array_elements_text(:ids::text::json) as asked
join stagepost_job_history as ended on ended.id = asked::uuid
