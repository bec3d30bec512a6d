-- Differs: locks, copies, then deletes what was copied. Those whose unique key is taken stay where they are.
select ended.id, ended.state
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id
for update
;
insert into stagepost_job (
    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
    unique_key, limit_key, limit_slots, payload, context, created_at, updated_at
)
select
    ended.id, ended.queue_name, ended.task_name, case when ended.limit_key is null then 'queued' else 'blocked' end,
    ended.priority, :now, ended.attempts, 0, 0, ended.max_attempts,
    ended.unique_key, ended.limit_key, ended.limit_slots, ended.payload, ended.context, ended.created_at, :now
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job_history as ended force index (primary) on ended.id = held.id
on duplicate key update id = stagepost_job.id
;
delete ended
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job_history as ended force index (primary) on held.id = ended.id
straight_join stagepost_job as job force index (primary) on job.id = ended.id
