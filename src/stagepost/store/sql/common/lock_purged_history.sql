select queue_name, state
from stagepost_job_history
where id >= :first_id and id <= :last_id
  and queue_name = :queue_name
  and batch_id is null
order by id
for update
