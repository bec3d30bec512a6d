-- Sealed, and none of their items lives: most are done in a moment, the others lost whoever should have said so.
-- Found by their counts, as whoever concludes them does: to see whether any of many rows is left, a plan may read all.
select id
from stagepost_batch as batch
where state = 'sealed'
  and state <> 'done'  -- said again: only so SQLite sees that its partial index will do
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
