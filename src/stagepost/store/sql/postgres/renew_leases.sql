-- Differs: rows come through json_to_recordset.
update stagepost_job as job
set lease_until = :now + :lease_us
from json_to_recordset(:leases::text::json) as lease (id uuid, attempt integer)
where job.id = lease.id
  and job.attempts = lease.attempt and job.locked_by = :owner
returning job.id, job.attempts, job.cancel_requested_at is not null
