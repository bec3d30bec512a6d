-- Differs: one writer at a time needs no row locks; names come through json_each.
update stagepost_job
set state = 'running',
    attempts = attempts + 1,
    locked_by = :owner,
    lease_until = :now + :lease_us,
    started_at = case when crashes < :suspect_crashes then :now end,
    cancel_requested_at = null,
    updated_at = :now
where id in (
    select id
    from stagepost_job
    where state = 'queued'
      and queue_name = :queue_name
      and sent_at is null
      [[and priority = :priority and available_at >= :after]]
      and task_name in (select value from json_each(:task_names))
      and not exists (select 1 from stagepost_queue where name = :queue_name and paused_at is not null)
    order by priority desc, available_at, id
    limit :slots
)
returning
    id, task_name, queue_name, attempts, failures, crashes, max_attempts, priority,
    created_at, available_at, payload, context, limit_key, batch_id, locked_by,
    blocked_on
