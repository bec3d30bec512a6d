-- Differs: at REPEATABLE READ a write locks the rows its subqueries read, or the gap if they find none. So a plain read
-- looks for existing rows first. There is no INSERT ... RETURNING, and the meaning of row_count() depends on a flag of
-- the connection. So if another request may create the same job, or the job's state depends on the clock, the row is
-- read back with a lock, and has -1 attempts until it is counted. If no other request can create the job, an existing
-- row is an error that rolls the transaction back, so that it is not counted twice.
select :id
from dual
where not exists (select 1 from stagepost_job where id = :id)
  and not exists (select 1 from stagepost_job_history where id = :id)
  and not exists (select 1 from stagepost_live_key where unique_key = :kept_key)
;
[[insert into stagepost_live_key (unique_key, job_id)
select :unique_key, wanted.id
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as wanted
where :keyed = 1
on duplicate key update unique_key = stagepost_live_key.unique_key
;
select job_id
from stagepost_live_key
where :keyed = 1 and unique_key = :unique_key
  and job_id = :id and :selected <> ''
lock in share mode
;]]
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
    :priority, coalesce(:available_at, :now + :delay_us), [[unless :marked 0]][[-:marked]], 0, 0, :max_attempts,
    :unique_key, :limit_key, :limit_slots,
    case
        when coalesce(:available_at, 0) > :now or :delay_us > 0 or :limit_slots is null then null
        else concat('limit:', :limit_key)
    end,
    :payload, :context, :now, :now
from dual
where :selected <> ''
[[on duplicate key update id = if(:marked = 1, stagepost_job.id, null)]]
;
[[unless :marked insert into stagepost_move (scope, became, jobs)
select
    concat('queue:', :queue_name),
    case when :delay_us > 0 then 'scheduled' when :limit_slots is not null then 'blocked' else 'active' end,
    1
from dual
where :selected <> '']]
[[select id, case when attempts = -1 then 'made' else 'there' end
from stagepost_job
where :marked = 1 and id = :id
  and :selected <> ''
lock in share mode
;
insert into stagepost_move (scope, became, jobs)
select concat('queue:', queue_name), case when state = 'queued' then 'active' else state end, 1
from stagepost_job
where :marked = 1 and id = :id and attempts = -1
  and :selected <> ''
;
update stagepost_job
set attempts = 0
where :marked = 1 and id = :id and attempts = -1
  and :selected <> '']]
