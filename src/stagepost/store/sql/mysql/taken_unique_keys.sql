-- Differs: ids come through json_table; read with a lock to see what was committed after the caller's snapshot.
select job.unique_key, job.id, ended.id
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id
straight_join stagepost_job as job force index (stagepost_job_unique_key) on job.unique_key = ended.unique_key
lock in share mode
