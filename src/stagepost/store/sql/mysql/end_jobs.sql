-- Differs: locks the jobs, records the change, copies them to history, then deletes them and frees their unique keys.
-- If a repeated request created a job again at the moment it ended, it is in history already and must be counted once:
-- it is returned with the count to undo. A plain read finds such jobs; a write would lock the gap where ended jobs are
-- inserted. The caller records the events: JSON_ARRAYAGG cuts off what is longer than group_concat_max_len.
select
    job.id, job.attempts,
    case when exists (select 1 from stagepost_job_history as ended where ended.id = job.id) then change_.state end,
    job.queue_name, job.batch_id, job.task_name, job.context,
    coalesce(
        (select level.level from stagepost_event_level as level where level.task_name = job.task_name),
        (select level.level from stagepost_event_level as level where level.task_name = ''),
        'final'
    )
from json_table(:changes, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt',
    owner varchar(64) character set utf8mb4 path '$.owner', state varchar(24) character set utf8mb4 path '$.state'
)) as change_
straight_join stagepost_job as job force index (primary) on job.id = change_.id
where job.attempts = change_.attempt and coalesce(job.locked_by, '') = change_.owner
  and (job.has_children = 0 or job.state = 'waiting')
for update
;
insert into stagepost_move (scope, was, became, jobs)
select
    case kind.scope when 'queue' then concat('queue:', moved.queue_name) else concat('batch:', moved.batch_id) end,
    moved.was, moved.became, moved.jobs
from (
    select
        job.queue_name, job.batch_id,
        case when job.state in ('queued', 'running') then 'active' else job.state end as was,
        change_.state as became,
        count(*) as jobs
    from json_table(:changes, '$[*]' columns (
        id char(36) character set ascii path '$.id', attempt integer path '$.attempt',
        owner varchar(64) character set utf8mb4 path '$.owner', state varchar(24) character set utf8mb4 path '$.state'
    )) as change_
    straight_join stagepost_job as job force index (primary) on job.id = change_.id
    where job.attempts = change_.attempt and coalesce(job.locked_by, '') = change_.owner
      and (job.has_children = 0 or job.state = 'waiting')
    group by 1, 2, 3, 4
) as moved
join (select 'queue' as scope union all select 'batch') as kind
where kind.scope = 'queue' or moved.batch_id is not null
;
insert into stagepost_job_history (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    processed_by, unique_key, limit_key, limit_slots, batch_id, item_key, payload, context, result, error, reason,
    created_at, started_at, finished_at
)
select
    job.id, job.queue_name, job.task_name, change_.state, job.priority, job.available_at, job.attempts,
    job.failures + coalesce(change_.failures, 0), job.crashes + coalesce(change_.crashes, 0), job.max_attempts,
    job.locked_by, job.unique_key, job.limit_key, job.limit_slots, job.batch_id, job.item_key, job.payload, job.context,
    change_.result, change_.error, change_.reason, job.created_at, job.started_at, :now
from json_table(:changes, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt',
    owner varchar(64) character set utf8mb4 path '$.owner',
    state varchar(24) character set utf8mb4 path '$.state',
    failures integer path '$.failures', crashes integer path '$.crashes',
    result longtext character set utf8mb4 path '$.result', error longtext character set utf8mb4 path '$.error',
    reason varchar(191) character set utf8mb4 path '$.reason'
)) as change_
straight_join stagepost_job as job force index (primary) on job.id = change_.id
where job.attempts = change_.attempt and coalesce(job.locked_by, '') = change_.owner
  and (job.has_children = 0 or job.state = 'waiting')
-- A request repeated at the moment its job ended may have created it again: the first end is kept.
on duplicate key update id = stagepost_job_history.id
;
delete job, live_key
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job as job force index (primary) on held.id = job.id
left join stagepost_live_key as live_key force index (primary)
    on live_key.unique_key = job.unique_key and live_key.job_id = job.id
