-- Differs: ids come through json_table.
select ended.id, ended.state, ended.task_name, ended.queue_name, ended.batch_id
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id
for update
