select kind, count(*)
from (
    select kind
    from stagepost_batch
    where state in ('open', 'sealed')
      and state <> 'done'  -- redundant, but SQLite uses its partial index only with this condition
    limit :most
) as unfinished
group by kind
