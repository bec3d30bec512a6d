-- Differs: no UPDATE ... RETURNING, so the rows are locked and read, then marked.
select job.id
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as picked
join stagepost_job as job on job.id = picked.id
where job.state = 'blocked'
for update
;
update stagepost_job as job
join json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held on held.id = job.id
set job.state = 'queued', job.updated_at = :now
