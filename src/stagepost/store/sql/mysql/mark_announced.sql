-- Differs: rows come through json_table.
update json_table(:told, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt'
)) as notice
straight_join stagepost_job_history as ended force index (primary) on ended.id = notice.id
set ended.announced_at = :now
where ended.attempts = notice.attempt
