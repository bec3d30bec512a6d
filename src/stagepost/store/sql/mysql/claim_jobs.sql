-- Differs: no UPDATE ... RETURNING, so the rows are locked and read as they will be, then marked. The index is forced:
-- with another the rows are sorted after they were locked, all of them.
select
    id, task_name, queue_name, attempts + 1, failures, crashes, max_attempts, priority,
    created_at, available_at, payload, context, limit_key, batch_id, :owner,
    blocked_on
from stagepost_job force index (stagepost_job_claim)
where state = 'queued'
  and queue_name = :queue_name
  and sent_at is null
  [[and priority = :priority and available_at >= :after]]
  and json_contains(:task_names, json_quote(task_name))
  and not exists (select 1 from stagepost_queue where name = :queue_name and paused_at is not null)
order by priority desc, available_at, id
limit :slots
for update skip locked
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as picked
straight_join stagepost_job as job force index (primary) on picked.id = job.id
set job.state = 'running',
    job.attempts = job.attempts + 1,
    job.locked_by = :owner,
    job.lease_until = :now + :lease_us,
    job.started_at = case when job.crashes < :suspect_crashes then :now end,
    job.cancel_requested_at = null,
    job.updated_at = :now
