-- Differs: locks, marks and returns in one statement. Rows are found again by their position (ctid), which costs less
-- than by id. A row that was changed after it was read has another position and is left to the next claim.
with picked as (
    select ctid as place
    from stagepost_job
    where state = 'queued'
      and queue_name = :queue_name
      and sent_at is null
      [[and priority = :priority and available_at >= :after]]
      and task_name = any (array(select json_array_elements_text(:task_names::text::json)))
      and not exists (select 1 from stagepost_queue where name = :queue_name and paused_at is not null)
    order by priority desc, available_at, id
    limit :slots
    for update skip locked
)
update stagepost_job as job
set state = 'running',
    attempts = job.attempts + 1,
    locked_by = :owner,
    lease_until = :now + :lease_us,
    started_at = case when job.crashes < :suspect_crashes then :now end,
    cancel_requested_at = null,
    updated_at = :now
where job.ctid = any (array(select place from picked))
returning
    job.id, job.task_name, job.queue_name, job.attempts, job.failures, job.crashes, job.max_attempts, job.priority,
    job.created_at, job.available_at, job.payload::text, job.context::text, job.limit_key, job.batch_id, job.locked_by,
    job.blocked_on
