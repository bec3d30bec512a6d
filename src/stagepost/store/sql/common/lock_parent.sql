select attempts, state, queue_name, batch_id
from stagepost_job
where id = :id
for update
