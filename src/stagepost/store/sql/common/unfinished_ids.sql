select id
from stagepost_batch
where state in ('open', 'sealed')
  and state <> 'done'  -- said again: only so SQLite sees that its partial index will do
  and id > :after
order by id
limit :most
