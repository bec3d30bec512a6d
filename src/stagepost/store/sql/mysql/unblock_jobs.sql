-- Differs: no UPDATE ... RETURNING, so the rows are locked and read, then marked.
select job.id, job.queue_name, job.batch_id
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as picked
straight_join stagepost_job as job force index (primary) on job.id = picked.id
where job.state = 'blocked'
for update
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job as job force index (primary) on held.id = job.id
set job.state = 'queued', job.updated_at = :now
