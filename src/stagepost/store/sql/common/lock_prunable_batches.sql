-- Steps go with their run.
select id
from stagepost_batch as batch
where state = 'done'
  and kind <> 'step'
  and done_at < :now - :older_us
  and not exists (
    select 1
    from stagepost_job as job
    where job.id between batch.first_id and batch.last_id
      and job.batch_id = batch.id
  )
  and not exists (
    select 1
    from stagepost_job_history as ended
    where ended.id between batch.first_id and batch.last_id
      and ended.batch_id = batch.id
  )
order by done_at
limit :most
for update skip locked
