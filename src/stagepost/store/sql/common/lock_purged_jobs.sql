select queue_name, batch_id, state
from stagepost_job
where id >= :first_id and id <= :last_id
  and queue_name = :queue_name
order by id
for update
