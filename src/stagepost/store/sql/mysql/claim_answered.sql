-- Differs: no UPDATE ... RETURNING, so the rows are locked and read as they will be, then marked.
select
    job.id, job.task_name, job.queue_name, job.attempts + 1, job.failures, job.crashes, job.max_attempts, job.priority,
    job.created_at, job.available_at, job.payload, job.context, job.limit_key, job.batch_id, :owner,
    job.blocked_on
from json_table(:answers, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt'
)) as answer
straight_join stagepost_job as job force index (primary) on job.id = answer.id
where json_contains(:task_names, json_quote(job.task_name))
  and job.state = 'queued' and job.attempts = answer.attempt - 1
for update
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as picked
straight_join stagepost_job as job force index (primary) on picked.id = job.id
set job.state = 'running',
    job.attempts = job.attempts + 1,
    job.locked_by = :owner,
    job.lease_until = :now,
    job.started_at = coalesce(job.sent_at, :now),
    job.sent_at = null,
    job.cancel_requested_at = null,
    job.updated_at = :now
