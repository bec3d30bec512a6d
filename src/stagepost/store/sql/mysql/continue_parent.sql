-- Differs: forces the primary key, because a search by another index also locks its entries and the gaps between them.
update stagepost_job force index (primary)
set state = :state,
    task_name = :task_name,
    queue_name = :queue_name,
    priority = :priority,
    max_attempts = :max_attempts,
    payload = :payload,
    context = :context,
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
