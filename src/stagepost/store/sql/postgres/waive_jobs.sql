-- Differs: ids come through json_array_elements_text.
select id, queue_name, batch_id, state
from stagepost_job_history
where id in (select json_array_elements_text(:ids::text::json)::uuid)
  and state in ('dead_letter', 'failed')
order by id
for update
;
update stagepost_job_history
set state = 'waived'
where id in (select json_array_elements_text(:selected::text::json)::uuid)
