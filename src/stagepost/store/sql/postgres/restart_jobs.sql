-- Differs: moves the rows in one statement.
with ended as (
    delete from stagepost_job_history
    where id in (select json_array_elements_text(:ids::text::json)::uuid)
    returning
        id, queue_name, task_name, state, priority, attempts, max_attempts, unique_key, limit_key, limit_slots, payload, context,
        created_at
),
restarted as (
    insert into stagepost_job (
        id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
        unique_key, limit_key, limit_slots, payload, context, created_at, updated_at
    )
    select
        id, queue_name, task_name, case when limit_key is null then 'queued' else 'blocked' end, priority, :now,
        attempts, 0, 0, max_attempts, unique_key, limit_key, limit_slots, payload, context, created_at, :now
    from ended
    returning id
)
select ended.id, ended.state
from ended
join restarted on restarted.id = ended.id
