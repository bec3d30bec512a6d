-- Differs: names come through json_each.
select
    id, task_name, limit_key, blocked_on, attempts
    [[, case when limit_key is null and task_name in (select value from json_each(:keyed)) then payload end]]
from stagepost_job
where state = 'queued'
  and queue_name = :queue_name
  and sent_at is null
order by priority desc, available_at, id
limit :most
