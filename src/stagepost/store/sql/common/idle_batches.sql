-- Sealed batches without live items. Most will be done in a moment; the others lost the worker that should conclude
-- them. Decided by the counts, as concluding does: to see whether any live item is left, a plan may read all of them.
select id
from stagepost_batch as batch
where state = 'sealed'
  and state <> 'done'  -- redundant, but SQLite uses its partial index only with this condition
  and id > :after
  and coalesce((
    select sum(jobs)
    from stagepost_count
    where scope = 'batch:' || batch.id
      and class in ('active', 'blocked', 'retrying', 'scheduled', 'waiting')
  ), 0) + coalesce((
    select sum(jobs)
    from stagepost_move
    where scope = 'batch:' || batch.id
      and became in ('active', 'blocked', 'retrying', 'scheduled', 'waiting')
  ), 0) - coalesce((
    select sum(jobs)
    from stagepost_move
    where scope = 'batch:' || batch.id
      and was in ('active', 'blocked', 'retrying', 'scheduled', 'waiting')
  ), 0) = 0
order by id
limit :most
