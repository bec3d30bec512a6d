-- Differs: finds the rows without a lock, then locks each, because locking a range would block inserts into its gaps.
select id
from stagepost_job
where id between :first_id and :last_id
  and batch_id = :batch_id
  and id > :after
  and state in ('blocked', 'queued', 'retrying', 'scheduled', 'waiting')
order by id
limit :most
;
select job.id, job.attempts, job.locked_by, job.state
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as found
straight_join stagepost_job as job force index (primary) on job.id = found.id
where job.state in ('blocked', 'queued', 'retrying', 'scheduled', 'waiting')
order by job.id
for update skip locked
