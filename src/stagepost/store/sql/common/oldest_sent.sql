select :now - available_at
from stagepost_job
where state = 'queued'
  and queue_name = :queue_name
  and sent_at > 0
order by sent_at
limit 1
