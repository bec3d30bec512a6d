-- Differs: rows come through json_table.
select ended.id, ended.attempts
from json_table(:changes, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt',
    owner varchar(64) character set utf8mb4 path '$.owner'
)) as change_
straight_join stagepost_job_history as ended force index (primary) on ended.id = change_.id
where ended.attempts = change_.attempt and coalesce(ended.processed_by, '') = change_.owner
