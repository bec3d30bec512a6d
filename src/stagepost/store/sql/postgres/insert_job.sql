-- Differs: inserts, counts and notifies in one statement; insert_jobs explains the notification.
with inserted as (
    insert into stagepost_job (
        id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
        unique_key, limit_key, limit_slots, blocked_on, payload, context, created_at, updated_at
    )
    select
        :id::uuid, :queue_name, :task_name,
        case
            when coalesce(:available_at::bigint, 0) > :now or :delay_us::bigint > 0 then 'scheduled'
            when :limit_slots::integer is not null then 'blocked'
            else 'queued'
        end,
        :priority::smallint, coalesce(:available_at::bigint, :now + :delay_us::bigint), 0, 0, 0, :max_attempts::integer,
        :unique_key, :limit_key::text, :limit_slots::integer,
        case
            when coalesce(:available_at::bigint, 0) > :now or :delay_us::bigint > 0 or :limit_slots::integer is null then null
            else 'limit:' || :limit_key::text
        end,
        :payload::text::json, :context::text::json, :now, :now
    where not exists (select 1 from stagepost_job_history where id = :id::uuid)
    on conflict do nothing
    returning id, queue_name, state
),
moved as (
    insert into stagepost_move (scope, became, jobs)
    select 'queue:' || queue_name, case when state = 'queued' then 'active' else state end, 1
    from inserted
)
select
    id,
    case
        when state <> 'queued' or :notify::integer = 0 then null
        when pg_try_advisory_xact_lock(736475017, mod(floor(extract(epoch from clock_timestamp()) * 20), 512)::int)
            then pg_notify('stagepost', queue_name)
    end
from inserted
