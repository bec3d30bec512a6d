-- Differs: rows come through json_table; reads before and after the insert for the reasons given in insert_job. The
-- rows read back may include jobs of an earlier request. Only jobs of this one are counted: they have -1 attempts until
-- then.
[[select asked.id
from json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id', kept_key varchar(191) character set utf8mb4 path '$.kept_key'
)) as asked
left join stagepost_job as live force index (primary) on live.id = asked.id
left join stagepost_job_history as ended force index (primary) on ended.id = asked.id
left join stagepost_live_key as held force index (primary) on held.unique_key = asked.kept_key
where :looks = 1
  and live.id is null and ended.id is null and held.unique_key is null
;]]
[[insert into stagepost_live_key (unique_key, job_id)
select asked.unique_key, asked.id
from json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id', unique_key varchar(191) character set utf8mb4 path '$.unique_key'
)) as asked
where :keyed = 1 and asked.unique_key is not null and locate(asked.id, :selected)
on duplicate key update unique_key = stagepost_live_key.unique_key
;
select asked.id
from json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id', unique_key varchar(191) character set utf8mb4 path '$.unique_key'
)) as asked
left join stagepost_live_key as held force index (primary) on held.unique_key = asked.unique_key
where :keyed = 1 and locate(asked.id, :selected)
  and (asked.unique_key is null or held.job_id = asked.id)
lock in share mode
;]]
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
    asked.priority, coalesce(asked.available_at, :now + asked.delay_us), [[unless :looks 0]][[-:looks]], 0, 0, asked.max_attempts,
    asked.unique_key, asked.limit_key, asked.limit_slots,
    case
        when coalesce(asked.available_at, 0) > :now or asked.delay_us > 0 or asked.limit_slots is null then null
        else concat('limit:', asked.limit_key)
    end,
    asked.batch_id, asked.item_key,
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
[[where :looks = 1 and locate(asked.id, :selected)]]
on duplicate key update id = stagepost_job.id
;
[[unless :looks insert into stagepost_move (scope, became, jobs)
select
    case kind.scope when 'queue' then concat('queue:', made.queue_name) else concat('batch:', made.batch_id) end,
    made.class, made.jobs
from (
    select
        queue_name, batch_id,
        case when delay_us > 0 then 'scheduled' when limit_slots is not null then 'blocked' else 'active' end as class,
        count(*) as jobs
    from json_table(:jobs, '$[*]' columns (
        queue_name varchar(191) character set utf8mb4 path '$.queue_name', delay_us bigint path '$.delay_us',
        limit_slots integer path '$.limit_slots',
        batch_id char(36) character set ascii path '$.batch_id'
    )) as asked
    group by 1, 2, 3
) as made
join (select 'queue' as scope union all select 'batch') as kind
where kind.scope = 'queue' or made.batch_id is not null
;
select asked.id
from json_table(:jobs, '$[*]' columns (id char(36) character set ascii path '$.id')) as asked
;]]
[[select job.id, case when job.attempts = -1 then 'made' else 'there' end
from json_table(:jobs, '$[*]' columns (id char(36) character set ascii path '$.id')) as asked
straight_join stagepost_job as job force index (primary) on asked.id = job.id
where :looks = 1 and locate(asked.id, :selected)
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
where job.attempts = -1]]
