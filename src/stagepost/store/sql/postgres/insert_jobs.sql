-- Differs: rows come through json_to_recordset; conflicts are skipped and the inserted ids returned at once.
insert into stagepost_job (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    unique_key, limit_key, limit_slots, payload, context, created_at, updated_at
)
select
    asked.id, asked.queue_name, asked.task_name,
    case
        when coalesce(asked.available_at, 0) > :now or asked.delay_us > 0 then 'scheduled'
        when asked.limit_key is not null then 'blocked'
        else 'queued'
    end,
    asked.priority, coalesce(asked.available_at, :now + asked.delay_us), 0, 0, 0, asked.max_attempts,
    asked.unique_key, asked.limit_key, asked.limit_slots, asked.payload::json, asked.context::json, :now, :now
from json_to_recordset(:jobs::text::json) as asked (
    id uuid, queue_name text, task_name text, priority smallint, available_at bigint, delay_us bigint,
    max_attempts integer, unique_key text, limit_key text, limit_slots integer, payload text, context text
)
where :repeated = 0
   or not exists (select 1 from stagepost_job_history as ended where ended.id = asked.id)
on conflict do nothing
returning id
