-- Differs: no UPDATE ... RETURNING, so the rows are locked and read, then changed.
select
    job.id, job.attempts, job.queue_name, job.batch_id,
    case when change_.state = 'queued' and job.limit_slots is not null then 'blocked' else change_.state end
from json_table(:changes, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt',
    owner varchar(64) character set utf8mb4 path '$.owner', state varchar(24) character set utf8mb4 path '$.state'
)) as change_
straight_join stagepost_job as job force index (primary) on job.id = change_.id
where job.attempts = change_.attempt and coalesce(job.locked_by, '') = change_.owner
  and job.cancel_requested_at is null
for update
;
update json_table(:changes, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt',
    owner varchar(64) character set utf8mb4 path '$.owner',
    state varchar(24) character set utf8mb4 path '$.state',
    failures integer path '$.failures', crashes integer path '$.crashes', delay_us bigint path '$.delay_us'
)) as change_
straight_join stagepost_job as job force index (primary) on change_.id = job.id
set job.available_at = case when change_.state = 'queued' then job.available_at else :now + coalesce(change_.delay_us, 0) end,
    job.state = case when change_.state = 'queued' and job.limit_slots is not null then 'blocked' else change_.state end,
    job.blocked_on = case
        when change_.state = 'queued' and job.limit_slots is not null then concat('limit:', job.limit_key)
    end,
    job.failures = job.failures + coalesce(change_.failures, 0),
    job.crashes = job.crashes + coalesce(change_.crashes, 0),
    job.lease_until = null,
    job.locked_by = null,
    job.progress = null,
    job.updated_at = :now
where job.attempts = change_.attempt and coalesce(job.locked_by, '') = change_.owner
  and job.cancel_requested_at is null
