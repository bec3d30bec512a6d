-- Differs: one writer at a time needs no row locks; rows come through json_each.
update stagepost_job
set state = 'running',
    attempts = attempts + 1,
    sent_at = null,
    locked_by = :owner,
    lease_until = :now + :lease_us,
    started_at = case when crashes < :suspect_crashes then :now end,
    cancel_requested_at = null,
    updated_at = :now
where id in (
    select job.id
    from json_each(:deliveries) as delivery
    join stagepost_job as job on job.id = delivery.value ->> 'id'
    where job.state = 'queued' and job.attempts = (delivery.value ->> 'attempt') - 1
      and job.queue_name = :queue_name
      and job.task_name in (select value from json_each(:task_names))
      and not exists (select 1 from stagepost_queue where name = :queue_name and paused_at is not null)
    order by job.id
    limit :slots
)
returning
    id, task_name, queue_name, attempts, failures, crashes, max_attempts, priority,
    created_at, available_at, payload, context, limit_key, batch_id, locked_by,
    blocked_on
