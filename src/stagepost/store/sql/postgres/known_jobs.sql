-- Differs: ids come through json_array_elements_text.
select job.id
from json_array_elements_text(:ids::text::json) as asked
join stagepost_job as job on job.id = asked::uuid
union all
select ended.id
from json_array_elements_text(:ids::text::json) as asked
join stagepost_job_history as ended on ended.id = asked::uuid
