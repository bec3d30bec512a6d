-- Differs: materialized, so that the planner uses the index on the state and does not scan all jobs by id.
with few as materialized (
    select *
    from stagepost_job_history
    where state = :state
    [[and queue_name = :queue_name]]
    [[and (task_name = :task_name or strpos(context::text, :first_task) > 0)]]
)
select
    id, task_name, queue_name, state, priority, attempts, failures, crashes, max_attempts, unique_key, limit_key,
    null, batch_id, item_key,
    payload::text, context::text, available_at, null, processed_by, null, created_at, finished_at, started_at,
    finished_at, result::text, error, null
from few
where id < :before
order by id desc
limit :most
