-- Differs: no UPDATE ... RETURNING, so the rows are locked and read, then marked.
select job.id
from json_table(:sent, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt'
)) as message
straight_join stagepost_job as job force index (primary) on job.id = message.id
where job.state = 'queued' and job.attempts = message.attempt - 1
  and job.updated_at <= :read_at
for update
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as sent
straight_join stagepost_job as job force index (primary) on sent.id = job.id
set job.sent_at = :now
