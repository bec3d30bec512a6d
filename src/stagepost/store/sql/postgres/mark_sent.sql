-- Differs: rows come through json_to_recordset. Locked in the order of their ids, as those who claim them do.
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
