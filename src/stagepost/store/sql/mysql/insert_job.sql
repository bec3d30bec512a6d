-- Differs: no INSERT ... RETURNING: what is there afterwards is read with a lock, and has -1 attempts until it is
-- counted if it was made just now, as in insert_jobs. What row_count() says depends on a flag of the connection.
insert into stagepost_job (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    unique_key, limit_key, limit_slots, payload, context, created_at, updated_at
)
select
    :id, :queue_name, :task_name,
    case
        when coalesce(:available_at, 0) > :now or :delay_us > 0 then 'scheduled'
        when :limit_key is not null then 'blocked'
        else 'queued'
    end,
    :priority, coalesce(:available_at, :now + :delay_us), -1, 0, 0, :max_attempts,
    :unique_key, :limit_key, :limit_slots, :payload, :context, :now, :now
from dual
where not exists (select 1 from stagepost_job_history where id = :id)
on duplicate key update id = stagepost_job.id
;
insert into stagepost_move (scope, became, jobs)
select concat('queue:', queue_name), case when state = 'queued' then 'active' else state end, 1
from stagepost_job
where id = :id and attempts = -1
;
update stagepost_job
set attempts = 0
where id = :id and attempts = -1
;
select id
from stagepost_job
where id = :id
lock in share mode
