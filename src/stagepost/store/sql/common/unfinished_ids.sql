select id
from stagepost_batch
where state in ('open', 'sealed')
  and id > :after
order by id
limit :most
