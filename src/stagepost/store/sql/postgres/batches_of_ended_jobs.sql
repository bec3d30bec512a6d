-- Differs: ids come through json_array_elements_text.
select distinct ended.batch_id
from json_array_elements_text(:ids::text::json) as asked
join stagepost_job_history as ended on ended.id = asked::uuid
where ended.batch_id is not null
