-- Differs: ids come through json_array_elements_text. Locks in the order of ids, as claiming does.
with picked as (
    select job.id
    from json_array_elements_text(:ids::text::json) as wanted (id)
    join stagepost_job as job on job.id = wanted.id::uuid
    where job.state = 'queued' and coalesce(job.sent_at, 0) <= :sent_before
    order by job.id
    for update of job
)
update stagepost_job as job
set state = case when :delay_us::bigint > 0 then 'scheduled' else job.state end,
    available_at = case when :delay_us::bigint > 0 then :now + :delay_us else job.available_at end,
    crashes = job.crashes + :crashes,
    sent_at = null,
    progress = null,
    updated_at = :now
from picked
where job.id = picked.id
returning job.id, job.queue_name, job.batch_id, job.state, job.attempts, job.crashes
