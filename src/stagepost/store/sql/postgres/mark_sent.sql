-- Differs: rows come through json_to_recordset. Locks in the order of ids, as claiming does.
with sent as (
    select job.id
    from json_to_recordset(:sent::text::json) as message (id uuid, attempt integer)
    join stagepost_job as job on job.id = message.id
    where job.state = 'queued' and job.attempts = message.attempt - 1
      and job.updated_at <= :read_at
    order by job.id
    for update of job
)
update stagepost_job as job
set sent_at = :now
from sent
where job.id = sent.id
returning job.id
