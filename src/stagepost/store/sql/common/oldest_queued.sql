select
    priority, :now - available_at,
    (
        select other.priority
        from stagepost_job as other
        where other.state = 'queued'
          and other.queue_name = :queue_name
          and other.sent_at is null
        order by other.priority
        limit 1
    ) as lowest
from stagepost_job
where state = 'queued'
  and queue_name = :queue_name
  and sent_at is null
  [[and priority < :below]]
order by priority desc, available_at, id
limit 1
