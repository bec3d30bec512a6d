-- Differs: joins texts with concat.
select id
from stagepost_batch as batch
where state = 'sealed'
  and id > :after
  and coalesce((
    select sum(jobs)
    from stagepost_count
    where scope = concat('batch:', batch.id)
      and class in ('active', 'blocked', 'retrying', 'scheduled', 'waiting')
  ), 0) + coalesce((
    select sum(jobs)
    from stagepost_move
    where scope = concat('batch:', batch.id)
      and became in ('active', 'blocked', 'retrying', 'scheduled', 'waiting')
  ), 0) - coalesce((
    select sum(jobs)
    from stagepost_move
    where scope = concat('batch:', batch.id)
      and was in ('active', 'blocked', 'retrying', 'scheduled', 'waiting')
  ), 0) = 0
order by id
limit :most
