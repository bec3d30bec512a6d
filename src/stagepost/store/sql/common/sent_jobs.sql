select id, attempts + 1, :now - sent_at
from stagepost_job
where state = 'queued'
  and queue_name = :queue_name
  and sent_at <= :now - :older_us
order by sent_at
limit :most
