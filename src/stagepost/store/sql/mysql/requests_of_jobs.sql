-- Differs: ids come through json_table. `behind` uses a locking read, to see jobs newer than the snapshot of a
-- caller's transaction. They exist, so no gap is locked.
(select job.id, job.task_name, job.payload
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job as job force index (primary) on job.id = asked.id
[[where :behind = 1
lock in share mode]])
union all
(select ended.id, ended.task_name, ended.payload
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id)
