-- Differs: ids come through json_each.
select distinct ended.batch_id
from json_each(:ids) as asked
join stagepost_job_history as ended on ended.id = asked.value
where ended.batch_id is not null
