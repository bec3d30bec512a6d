-- Differs: rows come through json_to_recordset.
select job.id, job.attempts
from json_to_recordset(:leases::text::json) as lease (id uuid, attempt integer)
join stagepost_job as job on job.id = lease.id
where job.attempts = lease.attempt and job.locked_by = :owner
  and job.cancel_requested_at is not null
