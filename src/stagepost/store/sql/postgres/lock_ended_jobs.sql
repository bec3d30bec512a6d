-- Differs: ids come through json_array_elements_text.
select id, state, task_name, queue_name, batch_id
from stagepost_job_history
where id in (select json_array_elements_text(:ids::text::json)::uuid)
order by id
for update
