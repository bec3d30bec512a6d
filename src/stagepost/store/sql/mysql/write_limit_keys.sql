-- Differs: rows come through json_table.
update json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt',
    limit_key varchar(191) character set utf8mb4 path '$.limit_key'
)) as asked
straight_join stagepost_job as job force index (primary) on asked.id = job.id
set job.limit_key = asked.limit_key
where job.state = 'running' and job.attempts = asked.attempt and job.locked_by = :owner
