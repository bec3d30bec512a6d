-- Differs: no UPDATE ... RETURNING, so the rows are locked and read, then extended. Progress is written by itself:
-- beside `:selected`, a second table of JSON would be read again for every row of it.
-- A locked row is passed over: waiting for it, while another waits for one that was locked here, would be a deadlock.
select job.id, job.attempts, job.cancel_requested_at is not null
from json_table(:leases, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt'
)) as lease
straight_join stagepost_job as job force index (primary) on job.id = lease.id
where job.attempts = lease.attempt and job.locked_by = :owner
for update skip locked
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job as job force index (primary) on held.id = job.id
set job.lease_until = :now + :lease_us
;
[[update json_table(:leases, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt',
    progress longtext character set utf8mb4 path '$.progress'
)) as lease
straight_join stagepost_job as job force index (primary) on job.id = lease.id
set job.progress = lease.progress
where :reporting = 1 and lease.progress is not null and locate(lease.id, :selected)
  and job.attempts = lease.attempt]]
