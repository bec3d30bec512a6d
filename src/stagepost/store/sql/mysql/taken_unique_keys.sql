-- Differs: ids come through json_table; read with a lock to see what was committed after the caller's snapshot.
select job.unique_key, job.id
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
join stagepost_job_history as ended on ended.id = asked.id
join stagepost_job as job on job.unique_key = ended.unique_key
lock in share mode
