-- Differs: at REPEATABLE READ a write locks what its subqueries read, and where they find nothing the gap: so all that
-- may be there is looked for by a plain read first, and what follows finds rows that are there. There is no INSERT ...
-- RETURNING: where others may make the same job at this moment, or its state depends on the clock, what is there
-- afterwards is read with a lock, and has -1 attempts until it is counted. What row_count() says depends on a flag of
-- the connection. Where nobody else should make it, a job that is there all the same is an error, which undoes the
-- transaction: it must not be counted twice.
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
    unique_key, limit_key, limit_slots, payload, context, created_at, updated_at
)
select
    :id, :queue_name, :task_name,
    case
        when coalesce(:available_at, 0) > :now or :delay_us > 0 then 'scheduled'
        when :limit_key is not null then 'blocked'
        else 'queued'
    end,
    :priority, coalesce(:available_at, :now + :delay_us), [[unless :marked 0]][[-:marked]], 0, 0, :max_attempts,
    :unique_key, :limit_key, :limit_slots, :payload, :context, :now, :now
from dual
where :selected <> ''
[[on duplicate key update id = if(:marked = 1, stagepost_job.id, null)]]
;
[[unless :marked insert into stagepost_move (scope, became, jobs)
select
    concat('queue:', :queue_name),
    case when :delay_us > 0 then 'scheduled' when :limit_key is not null then 'blocked' else 'active' end,
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
