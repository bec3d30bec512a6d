-- Differs: rows come through json_table; read with a lock to see what was committed after the caller's snapshot.
(select asked.id, job.id
from json_table(:jobs, '$[*]' columns (id char(36) character set ascii path '$.id')) as asked
straight_join stagepost_job as job force index (primary) on job.id = asked.id
lock in share mode)
union all
(select asked.id, job.id
from json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id', unique_key varchar(191) character set utf8mb4 path '$.unique_key'
)) as asked
straight_join stagepost_job as job force index (stagepost_job_unique_key) on job.unique_key = asked.unique_key
lock in share mode)
union all
(select asked.id, ended.id
from json_table(:jobs, '$[*]' columns (id char(36) character set ascii path '$.id')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id
lock in share mode)
