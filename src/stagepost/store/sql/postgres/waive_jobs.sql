-- Differs: ids come through json_array_elements_text.
select
    id, queue_name, batch_id, state, task_name, attempts, reason, context::text,
    coalesce(
        (select level.level from stagepost_event_level as level where level.task_name = stagepost_job_history.task_name),
        (select level.level from stagepost_event_level as level where level.task_name = ''),
        'final'
    )
from stagepost_job_history
where id in (select json_array_elements_text(:ids::text::json)::uuid)
  and state in ('dead_letter', 'failed')
order by id
for update
;
update stagepost_job_history
set state = 'waived'
where id in (select json_array_elements_text(:selected::text::json)::uuid)
