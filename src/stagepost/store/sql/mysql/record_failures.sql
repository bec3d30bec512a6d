-- Differs: rows come through json_table.
insert into stagepost_failure (job_id, attempt, kind, error, traceback, owner, failed_at)
select id, attempt, kind, error, traceback, owner, :now
from json_table(:failures, '$[*]' columns (
    id char(36) path '$.id', attempt integer path '$.attempt', kind varchar(16) character set utf8mb4 path '$.kind',
    error longtext character set utf8mb4 path '$.error', traceback longtext character set utf8mb4 path '$.traceback',
    owner varchar(64) character set utf8mb4 path '$.owner'
)) as failure
on duplicate key update job_id = stagepost_failure.job_id
