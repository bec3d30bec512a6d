-- Differs: ids come through json_table.
select job.id
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job as job force index (primary) on job.id = asked.id
union all
select ended.id
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id
