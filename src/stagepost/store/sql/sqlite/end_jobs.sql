-- Differs: copies, then deletes what was copied.
insert into stagepost_job_history (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    processed_by, unique_key, limit_key, limit_slots, payload, context, result, error, reason,
    created_at, started_at, finished_at
)
select
    job.id, job.queue_name, job.task_name, change.value ->> 'state', job.priority, job.available_at, job.attempts,
    job.failures + (change.value ->> 'failures'), job.crashes + (change.value ->> 'crashes'), job.max_attempts,
    job.locked_by, job.unique_key, job.limit_key, job.limit_slots, job.payload, job.context,
    change.value ->> 'result', change.value ->> 'error', change.value ->> 'reason', job.created_at, job.started_at, :now
from json_each(:changes) as change
join stagepost_job as job on job.id = change.value ->> 'id'
where job.attempts = change.value ->> 'attempt' and coalesce(job.locked_by, '') = change.value ->> 'owner'
returning id, attempts
;
delete from stagepost_job
where id in (select value from json_each(:selected))
