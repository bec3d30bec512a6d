-- Differs: ids come through json_table.
select job.id, job.state, job.attempts, job.task_name
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as picked
straight_join stagepost_job as job force index (primary) on job.id = picked.id
