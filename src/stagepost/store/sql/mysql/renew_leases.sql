-- Differs: no UPDATE ... RETURNING, so the rows are locked and read, then extended.
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
