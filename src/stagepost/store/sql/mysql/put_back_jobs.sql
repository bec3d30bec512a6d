-- Differs: no UPDATE ... RETURNING, so the rows are locked and read as they will be, then marked.
select job.id, job.queue_name, job.batch_id, case when :delay_us > 0 then 'scheduled' else job.state end,
    job.attempts, job.crashes + :crashes
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as picked
straight_join stagepost_job as job force index (primary) on job.id = picked.id
where job.state = 'queued' and coalesce(job.sent_at, 0) <= :sent_before
for update
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job as job force index (primary) on held.id = job.id
set job.state = case when :delay_us > 0 then 'scheduled' else job.state end,
    job.available_at = case when :delay_us > 0 then :now + :delay_us else job.available_at end,
    job.crashes = job.crashes + :crashes,
    job.sent_at = null,
    job.progress = null,
    job.updated_at = :now
