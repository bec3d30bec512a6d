-- Differs: no UPDATE ... RETURNING, so the rows are locked and read as they will be, then marked. A transaction that
-- has locked a limit waits for no job, so there are no deadlocks.
select job.id, job.queue_name, job.batch_id, case when asked.due_at > :now then 'scheduled' else 'queued' end
from json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id', due_at bigint path '$.due_at'
)) as asked
straight_join stagepost_job as job force index (primary) on job.id = asked.id
where job.state = 'blocked'
for update skip locked
;
update json_table(:jobs, '$[*]' columns (
    id char(36) character set ascii path '$.id', due_at bigint path '$.due_at'
)) as asked
straight_join stagepost_job as job force index (primary) on asked.id = job.id
set job.state = case when asked.due_at > :now then 'scheduled' else 'queued' end,
    job.available_at = case when asked.due_at > :now then asked.due_at else job.available_at end,
    job.blocked_on = case when :forgets = 1 then null else job.blocked_on end,
    job.updated_at = :now
where locate(asked.id, :selected)
