-- Differs: one writer at a time needs no row locks; rows come through json_each.
update stagepost_job
set state = 'blocked',
    blocked_on = asked.value ->> 'blocked_on',
    limit_key = asked.value ->> 'limit_key',
    attempts = case when state = 'running' then attempts - 1 else attempts end,
    started_at = case when state = 'running' then null else started_at end,
    lease_until = null,
    locked_by = null,
    updated_at = :now
from json_each(:jobs) as asked
where stagepost_job.id = asked.value ->> 'id'
  and state in ('queued', 'running') and sent_at is null
  and attempts = asked.value ->> 'attempt' and coalesce(locked_by, '') = :owner
returning stagepost_job.id, queue_name, batch_id
