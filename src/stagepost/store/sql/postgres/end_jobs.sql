-- Differs: moves the rows to history and records the change and its event in one statement; a single job is found by its id.
with ended as (
    delete from stagepost_job as job
    using json_to_recordset(:changes::text::json) as change (
        id uuid, attempt integer, owner text, state text, failures integer, crashes integer, result text, error text,
        reason text
    )
    where job.id = change.id
      [[and job.id = :only::uuid]]
      and job.attempts = change.attempt and coalesce(job.locked_by, '') = change.owner
      and (job.has_children = 0 or job.state = 'waiting')
    returning
        job.id, job.queue_name, job.task_name, change.state, job.priority, job.available_at, job.attempts,
        job.failures + coalesce(change.failures, 0) as failures, job.crashes + coalesce(change.crashes, 0) as crashes, job.max_attempts,
        job.locked_by, job.unique_key, job.limit_key, job.limit_slots, job.batch_id, job.item_key, job.payload, job.context, change.result, change.error,
        change.reason,
        job.created_at, job.started_at, job.state as was
),
kept as (
    insert into stagepost_job_history (
        id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
        processed_by, unique_key, limit_key, limit_slots, batch_id, item_key, payload, context, result, error, reason,
        created_at, started_at, finished_at
    )
    select
        id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
        locked_by, unique_key, limit_key, limit_slots, batch_id, item_key, payload, context, result::json, error, reason, created_at, started_at, :now
    from ended
    -- A request repeated at the moment its job ended may have created it again: the first end is kept. It was committed
    -- before the job could be created again, so this sees it; `on conflict` would cost a third more.
    where not exists (
        select 1
        from stagepost_job_history as known
        where known.id = ended.id [[and known.id = :only::uuid]]
    )
    returning id, state, task_name, queue_name, attempts, batch_id, reason, context
),
told as (
    insert into stagepost_event (happened_at, subject, number, facts)
    select
        :now, 'job', count(*),
        json_agg(json_build_array(
            kept.id, kept.state, kept.task_name, kept.queue_name, kept.attempts, kept.batch_id, kept.reason,
            case when octet_length(kept.context::text) <= 2000 then kept.context::text end
        ))
    from kept
    left join stagepost_event_level as own on own.task_name = kept.task_name
    left join stagepost_event_level as general on general.task_name = ''
    where coalesce(own.level, general.level, 'final') <> 'off'
    having count(*) > 0
),
moved as (
    insert into stagepost_move (scope, was, became, jobs)
    select
        'queue:' || queue_name, case when was in ('queued', 'running') then 'active' else was end,
        case when id in (select id from kept) then state end, count(*)
    from ended
    group by 1, 2, 3
    union all
    select
        'batch:' || batch_id, case when was in ('queued', 'running') then 'active' else was end,
        case when id in (select id from kept) then state end, count(*)
    from ended
    where batch_id is not null
    group by 1, 2, 3
)
select id, attempts
from kept
