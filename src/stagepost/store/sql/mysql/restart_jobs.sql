-- Differs: skips live jobs first, because locking a row that is not in history would lock the gap. A job that ended
-- after the snapshot of a caller's transaction is live in the snapshot, but a locking read shows that it has ended.
-- Then locks the others, takes their unique keys, copies them and deletes the originals. Skips jobs whose unique key is
-- taken.
select asked.id
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
left join stagepost_job as job force index (primary) on job.id = asked.id
where case
    when job.id is null then true
    else not exists (select 1 from stagepost_job as locked where locked.id = job.id lock in share mode)
end
;
select
    ended.id, ended.state, ended.queue_name, ended.batch_id,
    case when ended.limit_slots is null then 'queued' else 'blocked' end
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as found
straight_join stagepost_job_history as ended force index (primary) on ended.id = found.id
for update
;
insert into stagepost_live_key (unique_key, job_id)
select ended.unique_key, ended.id
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job_history as ended force index (primary) on ended.id = held.id
where ended.unique_key is not null
on duplicate key update unique_key = stagepost_live_key.unique_key
;
insert into stagepost_job (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    unique_key, limit_key, limit_slots, blocked_on, batch_id, item_key, payload, context, created_at, updated_at
)
select
    ended.id, ended.queue_name, ended.task_name, case when ended.limit_slots is null then 'queued' else 'blocked' end,
    ended.priority, :now, ended.attempts, 0, 0, ended.max_attempts,
    ended.unique_key, ended.limit_key, ended.limit_slots,
    case when ended.limit_slots is not null then concat('limit:', ended.limit_key) end, ended.batch_id, ended.item_key,
    ended.payload, ended.context, ended.created_at, :now
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job_history as ended force index (primary) on ended.id = held.id
left join stagepost_live_key as live_key force index (primary) on live_key.unique_key = ended.unique_key
where ended.unique_key is null or live_key.job_id = ended.id
on duplicate key update id = stagepost_job.id
;
delete ended
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job_history as ended force index (primary) on held.id = ended.id
left join stagepost_live_key as live_key force index (primary) on live_key.unique_key = ended.unique_key
where ended.unique_key is null or live_key.job_id = ended.id
