-- Differs: rows come through json_to_recordset. A locked row is passed over: waiting for it, while another waits for one
-- that was locked here, would be a deadlock.
with held as (
    select job.id, lease.progress
    from json_to_recordset(:leases::text::json) as lease (id uuid, attempt integer, progress text)
    join stagepost_job as job on job.id = lease.id
    where job.attempts = lease.attempt and job.locked_by = :owner
    for update of job skip locked
)
update stagepost_job as job
set lease_until = :now + :lease_us,
    progress = coalesce(held.progress::json, job.progress)
from held
where job.id = held.id
returning job.id, job.attempts, job.cancel_requested_at is not null
