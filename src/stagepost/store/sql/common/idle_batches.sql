-- Sealed, and none of their items lives: most are done in a moment, the others lost whoever should have said so.
select id
from stagepost_batch as batch
where state = 'sealed'
  and state <> 'done'  -- said again: only so SQLite sees that its partial index will do
  and id > :after
  and not exists (
    select 1
    from stagepost_job as job
    where job.id between batch.first_id and batch.last_id
      and job.batch_id = batch.id
  )
order by id
limit :most
