-- Differs: names come through json_contains; the index is forced, so that nothing is sorted.
select
    id, task_name, limit_key, blocked_on, attempts
    [[, case when limit_key is null and json_contains(:keyed, json_quote(task_name)) then payload end]]
from stagepost_job force index (stagepost_job_claim)
where state = 'queued'
  and queue_name = :queue_name
  and sent_at is null
order by priority desc, available_at, id
limit :most
