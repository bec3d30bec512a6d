select id, attempts, locked_by, state
from stagepost_job
where id between :first_id and :last_id
  and batch_id = :batch_id
  and id > :after
  and state in ('blocked', 'queued', 'retrying', 'scheduled', 'waiting')
order by id
limit :most
for update skip locked
