-- Differs: rows come through json_table; live jobs' unique keys are in a separate table. Reads without locks, which
-- would keep those jobs from ending. `behind` finds keys taken after a caller's transaction took its snapshot.
(select asked.id, job.id
from json_table(:jobs, '$[*]' columns (id char(36) character set ascii path '$.id')) as asked
straight_join stagepost_job as job force index (primary) on job.id = asked.id)
union all
(select asked.id, held.job_id
from json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id', unique_key varchar(191) character set utf8mb4 path '$.unique_key'
)) as asked
straight_join stagepost_live_key as held force index (primary) on held.unique_key = asked.unique_key
[[where :behind = 1
lock in share mode]])
union all
(select asked.id, ended.id
from json_table(:jobs, '$[*]' columns (id char(36) character set ascii path '$.id')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id)
