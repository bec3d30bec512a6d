select id, queue_name, batch_id
from stagepost_job_history
where state = :state
  and finished_at < :now - :older_us
  -- Keep items of an unfinished batch: they prevent duplicates of their keys.
  and not exists (
    select 1
    from stagepost_batch as batch
    where batch.id = stagepost_job_history.batch_id and batch.state <> 'done'
  )
  -- Keep jobs of a step until its run ends: later steps read their results.
  and not exists (
    select 1
    from stagepost_batch as batch
    join stagepost_run as run on run.id = batch.owner_id
    where batch.id = stagepost_job_history.batch_id and run.state = 'running'
  )
  -- Keep children while their parent is live: its continuation reads their results.
  and not exists (select 1 from stagepost_job as parent where parent.id = stagepost_job_history.batch_id)
order by finished_at
limit :most
for update skip locked
