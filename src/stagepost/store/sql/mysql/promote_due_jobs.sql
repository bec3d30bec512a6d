-- Differs: no UPDATE ... RETURNING, so the rows are locked and read, then marked. The condition on the lease is there
-- for the index, whose first column it is.
select id, queue_name, batch_id, state, case when limit_slots is null then 'queued' else 'blocked' end
from stagepost_job
where state in ('retrying', 'scheduled')
  and lease_until is null
  and available_at <= :now
order by available_at
limit :most
for update skip locked
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as due
straight_join stagepost_job as job force index (primary) on due.id = job.id
set job.state = case when job.limit_slots is null then 'queued' else 'blocked' end,
    job.blocked_on = case when job.limit_slots is null then job.blocked_on else concat('limit:', job.limit_key) end,
    job.updated_at = :now
