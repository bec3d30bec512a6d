-- Batches of steps are deleted with their run. PostgreSQL cannot estimate how many jobs are between two ids: with
-- `exists` or `batch_id =` it expects few and reads all; asked for the first in order, it stops at that one.
select id
from stagepost_batch as batch
where state = 'done'
  and kind <> 'step'
  and done_at < :now - :older_us
  and not exists (select 1 from stagepost_job as parent where parent.id = batch.id)
  and (
    select job.id
    from stagepost_job as job
    where job.id between batch.first_id and batch.last_id
      and coalesce(job.batch_id = batch.id, false)
    order by job.id
    limit 1
  ) is null
  and (
    select ended.id
    from stagepost_job_history as ended
    where ended.id between batch.first_id and batch.last_id
      and coalesce(ended.batch_id = batch.id, false)
    order by ended.id
    limit 1
  ) is null
order by done_at
limit :most
for update skip locked
