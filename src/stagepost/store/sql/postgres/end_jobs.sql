-- Differs: moves the rows in one statement.
with ended as (
    delete from stagepost_job as job
    using json_to_recordset(:changes::text::json) as change (
        id uuid, attempt integer, owner text, state text, failures integer, crashes integer, result text, error text,
        reason text
    )
    where job.id = change.id
      and job.attempts = change.attempt and coalesce(job.locked_by, '') = change.owner
    returning
        job.id, job.queue_name, job.task_name, change.state, job.priority, job.available_at, job.attempts,
        job.failures + change.failures as failures, job.crashes + change.crashes as crashes, job.max_attempts,
        job.locked_by, job.unique_key, job.limit_key, job.limit_slots, job.payload, job.context, change.result, change.error,
        change.reason,
        job.created_at, job.started_at
)
insert into stagepost_job_history (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    processed_by, unique_key, limit_key, limit_slots, payload, context, result, error, reason,
    created_at, started_at, finished_at
)
select
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    locked_by, unique_key, limit_key, limit_slots, payload, context, result::json, error, reason, created_at, started_at, :now
from ended
-- A request repeated at the very moment its job ended may have made it once more: the first end stands.
on conflict (id) do nothing
returning id, attempts
