-- Differs: rows come through json_table; no INSERT ... RETURNING in MySQL, so the inserted rows are read back.
insert into stagepost_schedule_run (schedule_name, due_at, job_id, fired_at)
select schedule_name, due_at, job_id, :now
from json_table(:runs, '$[*]' columns (
    schedule_name varchar(191) character set utf8mb4 path '$.schedule_name', due_at bigint path '$.due_at',
    job_id char(36) path '$.job_id'
)) as asked
on duplicate key update job_id = stagepost_schedule_run.job_id
;
select run.job_id, run.fired_at
from json_table(:runs, '$[*]' columns (
    schedule_name varchar(191) character set utf8mb4 path '$.schedule_name', due_at bigint path '$.due_at',
    job_id char(36) character set ascii path '$.job_id'
)) as asked
straight_join stagepost_schedule_run as run force index (primary)
    on run.schedule_name = asked.schedule_name and run.due_at = asked.due_at and run.job_id = asked.job_id
