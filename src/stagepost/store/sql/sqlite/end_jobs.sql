-- Differs: copies the rows, records the change and its events, then deletes the originals. Parsing thousands of changes costs more
-- than writing them, so for jobs that end alike it takes their ids and a single change.
[[unless :ids
insert into stagepost_job_history (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    processed_by, unique_key, limit_key, limit_slots, batch_id, item_key, payload, context, result, error, reason,
    created_at, started_at, finished_at
)
select
    job.id, job.queue_name, job.task_name, change.value ->> 'state', job.priority, job.available_at, job.attempts,
    job.failures + coalesce(change.value ->> 'failures', 0), job.crashes + coalesce(change.value ->> 'crashes', 0), job.max_attempts,
    job.locked_by, job.unique_key, job.limit_key, job.limit_slots, job.batch_id, job.item_key, job.payload, job.context,
    change.value ->> 'result', change.value ->> 'error', change.value ->> 'reason', job.created_at, job.started_at, :now
from json_each(:changes) as change
join stagepost_job as job on job.id = change.value ->> 'id'
where job.attempts = change.value ->> 'attempt' and coalesce(job.locked_by, '') = change.value ->> 'owner'
  and (job.has_children = 0 or job.state = 'waiting')
returning id, attempts
]]
[[
select json_group_array(json_array(job.id, job.attempts)) as packed
from json_each(:ids) as asked
join stagepost_job as job on job.id = asked.value
where job.attempts = :like ->> 'attempt' and coalesce(job.locked_by, '') = :like ->> 'owner'
  and (job.has_children = 0 or job.state = 'waiting')
;
insert into stagepost_job_history (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    processed_by, unique_key, limit_key, limit_slots, batch_id, item_key, payload, context, result, error, reason,
    created_at, started_at, finished_at
)
select
    job.id, job.queue_name, job.task_name, :like ->> 'state', job.priority, job.available_at, job.attempts,
    job.failures + coalesce(:like ->> 'failures', 0), job.crashes + coalesce(:like ->> 'crashes', 0), job.max_attempts,
    job.locked_by, job.unique_key, job.limit_key, job.limit_slots, job.batch_id, job.item_key, job.payload, job.context,
    :like ->> 'result', :like ->> 'error', :like ->> 'reason', job.created_at, job.started_at, :now
from json_each(:selected) as kept
join stagepost_job as job on job.id = kept.value
]]
;
insert into stagepost_move (scope, was, became, jobs)
select
    'queue:' || ended.queue_name,
    case
        when ended.processed_by is not null then 'active'  -- a job with an owner was running
        else (
            select case when job.state = 'queued' then 'active' else job.state end
            from stagepost_job as job
            where job.id = ended.id
        )
    end,
    ended.state, count(*)
from json_each(:selected) as kept
join stagepost_job_history as ended on ended.id = kept.value
group by 1, 2, 3
union all
select
    'batch:' || ended.batch_id,
    case
        when ended.processed_by is not null then 'active'  -- a job with an owner was running
        else (
            select case when job.state = 'queued' then 'active' else job.state end
            from stagepost_job as job
            where job.id = ended.id
        )
    end,
    ended.state, count(*)
from json_each(:selected) as kept
join stagepost_job_history as ended on ended.id = kept.value
where ended.batch_id is not null
group by 1, 2, 3
;
insert into stagepost_event (happened_at, subject, number, facts)
select
    :now, 'job' as subject, count(*),
    json_group_array(json_array(
        ended.id, ended.state, ended.task_name, ended.queue_name, ended.attempts, ended.batch_id, ended.reason,
        case when length(ended.context) <= 2000 then ended.context end
    ))
from json_each(:selected) as kept
join stagepost_job_history as ended on ended.id = kept.value
left join stagepost_event_level as own on own.task_name = ended.task_name
left join stagepost_event_level as general on general.task_name = ''
where coalesce(own.level, general.level, 'final') <> 'off'
group by subject  -- one group, or no row if there is no event
;
delete from stagepost_job
where id in (select value from json_each(:selected))
