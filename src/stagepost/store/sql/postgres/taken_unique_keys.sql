-- Differs: ids come through json_array_elements_text.
select job.unique_key, job.id, ended.id
from stagepost_job_history as ended
join stagepost_job as job on job.unique_key = ended.unique_key
where ended.id in (select json_array_elements_text(:ids::text::json)::uuid)
