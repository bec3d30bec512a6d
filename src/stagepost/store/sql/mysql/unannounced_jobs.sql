-- Differs: forces the index, because the planner may sort all failed jobs instead.
select id, task_name, queue_name, attempts, created_at, payload, context, finished_at, error
from stagepost_job_history force index (stagepost_job_history_ended)
where state = :state
  and finished_at >= :since
  and queue_name = :queue_name
  and announced_at is null
order by finished_at
limit :most
