select id
from stagepost_job
where state = 'queued'
  and queue_name = :queue_name
  and sent_at <= :sent_before
order by sent_at
limit :most
