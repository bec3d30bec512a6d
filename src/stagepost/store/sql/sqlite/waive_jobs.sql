-- Differs: ids come through json_each.
select
    id, queue_name, batch_id, state, task_name, attempts, reason, context,
    coalesce(
        (select level.level from stagepost_event_level as level where level.task_name = stagepost_job_history.task_name),
        (select level.level from stagepost_event_level as level where level.task_name = ''),
        'final'
    )
from stagepost_job_history
where id in (select value from json_each(:ids))
  and state in ('dead_letter', 'failed')
;
update stagepost_job_history
set state = 'waived'
where id in (select value from json_each(:selected))
