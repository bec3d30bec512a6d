select id, queue_name, batch_id
from stagepost_job_history
where state = :state
  and finished_at < :now - :older_us
  -- While a batch is unfinished its items stay: they keep others with their keys out.
  and not exists (
    select 1
    from stagepost_batch as batch
    where batch.id = stagepost_job_history.batch_id and batch.state <> 'done'
  )
  -- And jobs of a step while its run goes on: later steps read what they gave.
  and not exists (
    select 1
    from stagepost_batch as batch
    join stagepost_run as run on run.id = batch.owner_id
    where batch.id = stagepost_job_history.batch_id and run.state = 'running'
  )
  -- And children while their parent lives: its continuation reads what they gave.
  and not exists (select 1 from stagepost_job as parent where parent.id = stagepost_job_history.batch_id)
order by finished_at
limit :most
for update skip locked
