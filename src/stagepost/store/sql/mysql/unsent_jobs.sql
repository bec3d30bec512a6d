-- Differs: forces the index, because the planner may sort all queued jobs instead.
select id, task_name, attempts + 1, created_at, payload, context, priority, :now
from stagepost_job force index (stagepost_job_claim)
where state = 'queued'
  and queue_name = :queue_name
  and sent_at is null
  and not exists (select 1 from stagepost_queue where name in (:queue_name, '*') and paused_at is not null)
order by priority desc, available_at, id
limit :most
