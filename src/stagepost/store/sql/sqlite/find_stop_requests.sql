-- Differs: rows come through json_each.
select job.id, job.attempts
from json_each(:leases) as lease
join stagepost_job as job on job.id = lease.value ->> 'id'
where job.attempts = lease.value ->> 'attempt' and job.locked_by = :owner
  and job.cancel_requested_at is not null
