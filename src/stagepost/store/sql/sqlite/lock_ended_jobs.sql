-- Differs: ids come through json_each.
select id, state, task_name, queue_name, batch_id
from stagepost_job_history
where id in (select value from json_each(:ids))
order by id
