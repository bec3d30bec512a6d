-- Differs: casts json to text, because drivers decode json differently.
select id, task_name, queue_name, attempts, created_at, payload::text, context::text, finished_at, error
from stagepost_job_history
where state = :state
  and finished_at >= :since
  and queue_name = :queue_name
  and announced_at is null
order by finished_at
limit :most
