-- Differs: locks, marks and returns in one statement. Waits for rows that are being marked as sent.
with picked as (
    select job.id
    from json_to_recordset(:deliveries::text::json) as delivery (id uuid, attempt integer)
    join stagepost_job as job on job.id = delivery.id
    where job.state = 'queued' and job.attempts = delivery.attempt - 1
      and job.queue_name = :queue_name
      and job.task_name in (select json_array_elements_text(:task_names::text::json))
      and not exists (select 1 from stagepost_queue where name = :queue_name and paused_at is not null)
    order by job.id
    limit :slots
    for update of job
)
update stagepost_job as job
set state = 'running',
    attempts = job.attempts + 1,
    sent_at = null,
    locked_by = :owner,
    lease_until = :now + :lease_us,
    started_at = case when job.crashes < :suspect_crashes then :now end,
    cancel_requested_at = null,
    updated_at = :now
from picked
where job.id = picked.id
returning
    job.id, job.task_name, job.queue_name, job.attempts, job.failures, job.crashes, job.max_attempts, job.priority,
    job.created_at, job.available_at, job.payload::text, job.context::text, job.limit_key, job.batch_id, job.locked_by,
    job.blocked_on
