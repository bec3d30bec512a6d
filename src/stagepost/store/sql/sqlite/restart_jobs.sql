-- Differs: reads and copies the rows, then deletes the originals. Skips jobs whose unique key is taken.
select id, state, queue_name, batch_id, case when limit_slots is null then 'queued' else 'blocked' end
from stagepost_job_history
where id in (select value from json_each(:ids))
;
insert into stagepost_job (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    unique_key, limit_key, limit_slots, blocked_on, batch_id, item_key, payload, context, created_at, updated_at
)
select
    id, queue_name, task_name, case when limit_slots is null then 'queued' else 'blocked' end, priority, :now,
    attempts, 0, 0, max_attempts, unique_key, limit_key, limit_slots,
    case when limit_slots is not null then 'limit:' || limit_key end, batch_id, item_key, payload, context,
    created_at, :now
from stagepost_job_history
where id in (select value from json_each(:selected))
on conflict do nothing
;
delete from stagepost_job_history
where id in (select job.id from json_each(:selected) join stagepost_job as job on job.id = value)
