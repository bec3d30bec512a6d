-- Differs: locks, marks and returns in one statement, in the order of ids, as every other statement does.
with picked as (
    select job.id
    from json_to_recordset(:answers::text::json) as answer (id uuid, attempt integer)
    join stagepost_job as job on job.id = answer.id
    where job.task_name in (select json_array_elements_text(:task_names::text::json))
      and job.state = 'queued' and job.attempts = answer.attempt - 1
    order by job.id
    for update of job
)
update stagepost_job as job
set state = 'running',
    attempts = job.attempts + 1,
    locked_by = :owner,
    lease_until = :now,
    started_at = coalesce(job.sent_at, :now),
    sent_at = null,
    cancel_requested_at = null,
    updated_at = :now
from picked
where job.id = picked.id
returning
    job.id, job.task_name, job.queue_name, job.attempts, job.failures, job.crashes, job.max_attempts, job.priority,
    job.created_at, job.available_at, job.payload::text, job.context::text, job.limit_key, job.batch_id, job.locked_by,
    job.blocked_on
