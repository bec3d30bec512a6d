select id
from stagepost_batch
where state <> 'done'
  and cancelled_at is not null
  and id > :after
order by id
limit :most
