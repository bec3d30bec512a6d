-- Differs: finds the rows without a lock, then changes each, because a write to a range would lock its gaps.
select batch.id
from stagepost_job as job
straight_join stagepost_batch as batch on batch.id = job.id
where job.id between :first_id and :last_id
  and job.batch_id = :batch_id
  and job.state = 'running'
  and job.has_children = 1
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as found
straight_join stagepost_batch as batch force index (primary) on found.id = batch.id
set batch.cancelled_at = :now,
    batch.updated_at = :now
where batch.cancelled_at is null
  and batch.state <> 'done'
