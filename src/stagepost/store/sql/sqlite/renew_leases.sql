-- Differs: rows come through json_each.
update stagepost_job
set lease_until = :now + :lease_us,
    progress = coalesce(lease.value ->> 'progress', progress)
from json_each(:leases) as lease
where stagepost_job.id = lease.value ->> 'id'
  and attempts = lease.value ->> 'attempt' and locked_by = :owner
returning stagepost_job.id, attempts, cancel_requested_at is not null
