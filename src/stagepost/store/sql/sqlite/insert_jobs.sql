-- Differs: rows come through json_each.
insert into stagepost_job (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    unique_key, limit_key, limit_slots, blocked_on, batch_id, item_key, payload, context, created_at, updated_at
)
select
    asked.value ->> 'id', asked.value ->> 'queue_name', asked.value ->> 'task_name',
    case
        when coalesce(asked.value ->> 'available_at', 0) > :now or asked.value ->> 'delay_us' > 0 then 'scheduled'
        when asked.value ->> 'limit_slots' is not null then 'blocked'
        else 'queued'
    end,
    asked.value ->> 'priority', coalesce(asked.value ->> 'available_at', :now + (asked.value ->> 'delay_us')), 0, 0, 0,
    asked.value ->> 'max_attempts', asked.value ->> 'unique_key', asked.value ->> 'limit_key',
    asked.value ->> 'limit_slots',
    case
        when coalesce(asked.value ->> 'available_at', 0) > :now or asked.value ->> 'delay_us' > 0 then null
        when asked.value ->> 'limit_slots' is not null then 'limit:' || (asked.value ->> 'limit_key')
    end,
    asked.value ->> 'batch_id', asked.value ->> 'item_key',
    asked.value ->> 'payload', asked.value ->> 'context', :now, :now
from json_each(:jobs) as asked
where not exists (select 1 from stagepost_job_history as ended where ended.id = asked.value ->> 'id')
on conflict do nothing
returning id
;
insert into stagepost_move (scope, became, jobs)
select 'queue:' || job.queue_name, case when job.state = 'queued' then 'active' else job.state end, count(*)
from json_each(:selected) as inserted
join stagepost_job as job on job.id = inserted.value
group by job.queue_name, job.state
union all
select 'batch:' || job.batch_id, case when job.state = 'queued' then 'active' else job.state end, count(*)
from json_each(:selected) as inserted
join stagepost_job as job on job.id = inserted.value
where job.batch_id is not null
group by job.batch_id, job.state
