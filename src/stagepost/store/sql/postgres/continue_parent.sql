-- Differs: arguments are JSON, and listeners are notified as in insert_jobs.
update stagepost_job
set state = :state,
    task_name = :task_name,
    queue_name = :queue_name,
    priority = :priority,
    max_attempts = :max_attempts,
    payload = :payload::text::json,
    context = :context::text::json,
    limit_key = :limit_key,
    limit_slots = :limit_slots,
    blocked_on = :blocked_on,
    available_at = :now,
    failures = 0,
    crashes = 0,
    has_children = 0,
    cancel_requested_at = null,
    updated_at = :now
where id = :id
  and state = 'waiting'
returning
    case
        when state <> 'queued' then null
        when pg_try_advisory_xact_lock(736475017, mod(floor(extract(epoch from clock_timestamp()) * 20), 512)::int)
            then pg_notify('stagepost', queue_name)
    end
