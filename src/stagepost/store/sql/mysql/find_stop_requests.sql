-- Differs: rows come through json_table.
select job.id, job.attempts
from json_table(:leases, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt'
)) as lease
straight_join stagepost_job as job force index (primary) on job.id = lease.id
where job.attempts = lease.attempt and job.locked_by = :owner
  and job.cancel_requested_at is not null
