-- Differs: rows come through json_each.
update stagepost_job
set state = case
        when change.value ->> 'state' = 'queued' and limit_slots is not null then 'blocked'
        else change.value ->> 'state'
    end,
    blocked_on = case when change.value ->> 'state' = 'queued' and limit_slots is not null then 'limit:' || limit_key end,
    available_at = case
        when change.value ->> 'state' = 'queued' then available_at
        else :now + coalesce(change.value ->> 'delay_us', 0)
    end,
    failures = failures + coalesce(change.value ->> 'failures', 0),
    crashes = crashes + coalesce(change.value ->> 'crashes', 0),
    lease_until = null,
    locked_by = null,
    progress = null,
    updated_at = :now
from json_each(:changes) as change
where stagepost_job.id = change.value ->> 'id'
  and attempts = change.value ->> 'attempt' and coalesce(locked_by, '') = change.value ->> 'owner'
  and cancel_requested_at is null
returning stagepost_job.id, attempts, queue_name, batch_id, state
