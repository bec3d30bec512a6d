select id
from stagepost_batch
where state in ('open', 'sealed')
  and state <> 'done'  -- redundant, but SQLite uses its partial index only with this condition
  and id > :after
order by id
limit :most
