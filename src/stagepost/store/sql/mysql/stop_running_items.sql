-- Differs: finds the rows without a lock, then changes each, because a write to a range would lock its gaps.
select id
from stagepost_job
where id between :first_id and :last_id
  and batch_id = :batch_id
  and state = 'running'
  and cancel_requested_at is null
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as found
straight_join stagepost_job as job force index (primary) on found.id = job.id
set job.cancel_requested_at = :now,
    job.updated_at = :now
where job.state = 'running'
  and job.cancel_requested_at is null
