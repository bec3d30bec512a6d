-- Differs: rows come through json_to_recordset.
update stagepost_job as job
set state = case when change.state = 'queued' and job.limit_slots is not null then 'blocked' else change.state end,
    blocked_on = case when change.state = 'queued' and job.limit_slots is not null then 'limit:' || job.limit_key end,
    available_at = case when change.state = 'queued' then job.available_at else :now + coalesce(change.delay_us, 0) end,
    failures = job.failures + coalesce(change.failures, 0),
    crashes = job.crashes + coalesce(change.crashes, 0),
    lease_until = null,
    locked_by = null,
    progress = null,
    updated_at = :now
from json_to_recordset(:changes::text::json) as change (
    id uuid, attempt integer, owner text, state text, failures integer, crashes integer, delay_us bigint
)
where job.id = change.id
  and job.attempts = change.attempt and coalesce(job.locked_by, '') = change.owner
  and job.cancel_requested_at is null
returning job.id, job.attempts, job.queue_name, job.batch_id, job.state
