-- Differs: no UPDATE ... RETURNING, so the rows are locked and read, then marked. A transaction that has locked a limit
-- waits for no job, so there are no deadlocks.
select job.id, job.queue_name, job.batch_id
from json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt'
)) as asked
straight_join stagepost_job as job force index (primary) on job.id = asked.id
where job.state in ('queued', 'running') and job.sent_at is null
  and job.attempts = asked.attempt and coalesce(job.locked_by, '') = :owner
for update skip locked
;
update json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id',
    blocked_on varchar(200) character set utf8mb4 path '$.blocked_on',
    limit_key varchar(191) character set utf8mb4 path '$.limit_key'
)) as asked
straight_join stagepost_job as job force index (primary) on asked.id = job.id
set job.attempts = case when job.state = 'running' then job.attempts - 1 else job.attempts end,
    job.started_at = case when job.state = 'running' then null else job.started_at end,
    job.state = 'blocked',
    job.blocked_on = asked.blocked_on,
    job.limit_key = asked.limit_key,
    job.lease_until = null,
    job.locked_by = null,
    job.updated_at = :now
where locate(asked.id, :selected)
