-- Differs: rows come through json_to_recordset; skips conflicts and returns the inserted ids at once; notifies
-- listening workers once per statement, in the same transaction, of the queues that have jobs to claim now.
with inserted as (
    insert into stagepost_job (
        id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
        unique_key, limit_key, limit_slots, blocked_on, batch_id, item_key, payload, context, created_at, updated_at
    )
    select
        asked.id, asked.queue_name, asked.task_name,
        case
            when coalesce(asked.available_at, 0) > :now or asked.delay_us > 0 then 'scheduled'
            when asked.limit_slots is not null then 'blocked'
            else 'queued'
        end,
        asked.priority, coalesce(asked.available_at, :now + asked.delay_us), 0, 0, 0, asked.max_attempts,
        asked.unique_key, asked.limit_key, asked.limit_slots,
        case
            when coalesce(asked.available_at, 0) > :now or asked.delay_us > 0 or asked.limit_slots is null then null
            else 'limit:' || asked.limit_key
        end,
        asked.batch_id, asked.item_key,
        asked.payload::json, asked.context::json, :now, :now
    from json_to_recordset(:jobs::text::json) as asked (
        id uuid, queue_name text, task_name text, priority smallint, available_at bigint, delay_us bigint,
        max_attempts integer, unique_key text, limit_key text, limit_slots integer, batch_id uuid, item_key text,
        payload text, context text
    )
    -- `offset 0` prevents a join, which may return the rows in another order than they were given: transactions that
    -- take the same unique keys in opposite order deadlock.
    where not exists (select 1 from stagepost_job_history as ended where ended.id = asked.id offset 0)
    on conflict do nothing
    returning id, queue_name, batch_id, state
),
moved as (
    insert into stagepost_move (scope, became, jobs)
    select 'queue:' || queue_name, case when state = 'queued' then 'active' else state end, count(*)
    from inserted
    group by queue_name, state
    union all
    select 'batch:' || batch_id, case when state = 'queued' then 'active' else state end, count(*)
    from inserted
    where batch_id is not null
    group by batch_id, state
),
claimable as (
    select string_agg(distinct queue_name, ',') as queues
    from inserted
    where state = 'queued' and :notify = 1
),
told as (
    -- An empty name means any queue, because a notification must be shorter than 8,000 bytes.
    select pg_notify('stagepost', case when octet_length(queues) < 8000 then queues else '' end)
    from claimable
    where case
        when queues is null then false
        -- Transactions that notify commit one after the other, each waiting for the disk, so many of them would slow
        -- everything down. Of those within the same 50 ms only one at a time notifies.
        else pg_try_advisory_xact_lock(736475017, mod(floor(extract(epoch from clock_timestamp()) * 20), 512)::int)
    end
)
select id, (select count(*) from told)
from inserted
