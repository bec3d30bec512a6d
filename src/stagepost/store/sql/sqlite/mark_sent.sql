-- Differs: rows come through json_each.
update stagepost_job
set sent_at = :now
from json_each(:sent) as message
where stagepost_job.id = message.value ->> 'id'
  and state = 'queued' and attempts = (message.value ->> 'attempt') - 1
  and updated_at <= :read_at
returning stagepost_job.id
