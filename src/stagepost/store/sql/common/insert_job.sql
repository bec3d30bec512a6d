insert into stagepost_job (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    unique_key, limit_key, limit_slots, blocked_on, payload, context, created_at, updated_at
)
select
    :id, :queue_name, :task_name,
    case
        when coalesce(:available_at, 0) > :now or :delay_us > 0 then 'scheduled'
        when :limit_slots is not null then 'blocked'
        else 'queued'
    end,
    :priority, coalesce(:available_at, :now + :delay_us), 0, 0, 0, :max_attempts,
    :unique_key, :limit_key, :limit_slots,
    case
        when coalesce(:available_at, 0) > :now or :delay_us > 0 or :limit_slots is null then null
        else 'limit:' || :limit_key
    end,
    :payload, :context, :now, :now
where not exists (select 1 from stagepost_job_history where id = :id)
on conflict do nothing
returning id
;
insert into stagepost_move (scope, became, jobs)
select 'queue:' || queue_name, case when state = 'queued' then 'active' else state end, 1
from stagepost_job
where id in (select value from json_each(:selected))
