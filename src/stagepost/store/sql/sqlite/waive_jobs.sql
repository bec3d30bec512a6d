-- Differs: ids come through json_each.
select id, queue_name, batch_id, state
from stagepost_job_history
where id in (select value from json_each(:ids))
  and state in ('dead_letter', 'failed')
;
update stagepost_job_history
set state = 'waived'
where id in (select value from json_each(:selected))
