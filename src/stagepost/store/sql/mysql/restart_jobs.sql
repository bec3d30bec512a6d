-- Differs: locks, copies, then deletes what was copied. Those whose unique key is taken stay where they are.
select
    ended.id, ended.state, ended.queue_name, ended.batch_id,
    case when ended.limit_key is null then 'queued' else 'blocked' end
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id
-- A request repeated at the very moment its job ended may have made it once more: it lives already.
left join stagepost_job as job force index (primary) on job.id = ended.id
where job.id is null
for update
;
insert into stagepost_job (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    unique_key, limit_key, limit_slots, batch_id, item_key, payload, context, created_at, updated_at
)
select
    ended.id, ended.queue_name, ended.task_name, case when ended.limit_key is null then 'queued' else 'blocked' end,
    ended.priority, :now, ended.attempts, 0, 0, ended.max_attempts,
    ended.unique_key, ended.limit_key, ended.limit_slots, ended.batch_id, ended.item_key,
    ended.payload, ended.context, ended.created_at, :now
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job_history as ended force index (primary) on ended.id = held.id
on duplicate key update id = stagepost_job.id
;
delete ended
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job_history as ended force index (primary) on held.id = ended.id
straight_join stagepost_job as job force index (primary) on job.id = ended.id
