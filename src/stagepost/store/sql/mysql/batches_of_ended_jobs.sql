-- Differs: ids come through json_table.
select distinct ended.batch_id
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id
where ended.batch_id is not null
