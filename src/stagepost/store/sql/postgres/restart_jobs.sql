-- Differs: moves the rows in one statement. Skips jobs whose unique key is taken.
with asked as (
    select
        id, queue_name, task_name, state, priority, attempts, max_attempts, unique_key, limit_key, limit_slots,
        batch_id, item_key, payload, context, created_at
    from stagepost_job_history
    where id in (select json_array_elements_text(:ids::text::json)::uuid)
    order by id
    for update
),
restarted as (
    insert into stagepost_job (
        id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
        unique_key, limit_key, limit_slots, blocked_on, batch_id, item_key, payload, context, created_at, updated_at
    )
    select
        id, queue_name, task_name, case when limit_slots is null then 'queued' else 'blocked' end, priority, :now,
        attempts, 0, 0, max_attempts, unique_key, limit_key, limit_slots,
        case when limit_slots is not null then 'limit:' || limit_key end, batch_id, item_key, payload, context,
        created_at, :now
    from asked
    on conflict do nothing
    returning id, state
)
delete from stagepost_job_history as ended
using restarted
where ended.id = restarted.id
returning ended.id, ended.state, ended.queue_name, ended.batch_id, restarted.state
