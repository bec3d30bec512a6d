-- Differs: rows come through json_table; no INSERT ... RETURNING, so what was inserted is read back, with a lock
-- because a plain read in the caller's older snapshot would not see another's job. Among what is read back are jobs of
-- a request made before: those of this one, the only ones to be counted, have -1 attempts until they are.
insert into stagepost_job (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    unique_key, limit_key, limit_slots, batch_id, item_key, payload, context, created_at, updated_at
)
select
    asked.id, asked.queue_name, asked.task_name,
    case
        when coalesce(asked.available_at, 0) > :now or asked.delay_us > 0 then 'scheduled'
        when asked.limit_key is not null then 'blocked'
        else 'queued'
    end,
    asked.priority, coalesce(asked.available_at, :now + asked.delay_us), -1, 0, 0, asked.max_attempts,
    asked.unique_key, asked.limit_key, asked.limit_slots, asked.batch_id, asked.item_key,
    asked.payload, asked.context, :now, :now
from json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id',
    queue_name varchar(191) character set utf8mb4 path '$.queue_name',
    task_name varchar(191) character set utf8mb4 path '$.task_name',
    priority smallint path '$.priority', available_at bigint path '$.available_at', delay_us bigint path '$.delay_us',
    max_attempts integer path '$.max_attempts', unique_key varchar(191) character set utf8mb4 path '$.unique_key',
    limit_key varchar(191) character set utf8mb4 path '$.limit_key', limit_slots integer path '$.limit_slots',
    batch_id char(36) character set ascii path '$.batch_id',
    item_key varchar(191) character set utf8mb4 path '$.item_key',
    payload longtext character set utf8mb4 path '$.payload', context longtext character set utf8mb4 path '$.context'
)) as asked
where not exists (select 1 from stagepost_job_history as ended where ended.id = asked.id)
on duplicate key update id = stagepost_job.id
;
select job.id
from json_table(:jobs, '$[*]' columns (id char(36) character set ascii path '$.id')) as asked
straight_join stagepost_job as job force index (primary) on asked.id = job.id
lock in share mode
;
insert into stagepost_move (scope, became, jobs)
select concat('queue:', job.queue_name), case when job.state = 'queued' then 'active' else job.state end, count(*)
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as found
straight_join stagepost_job as job force index (primary) on job.id = found.id
where job.attempts = -1
group by job.queue_name, job.state
union all
select concat('batch:', job.batch_id), case when job.state = 'queued' then 'active' else job.state end, count(*)
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as found
straight_join stagepost_job as job force index (primary) on job.id = found.id
where job.attempts = -1 and job.batch_id is not null
group by job.batch_id, job.state
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as found
straight_join stagepost_job as job force index (primary) on found.id = job.id
set job.attempts = 0
where job.attempts = -1
