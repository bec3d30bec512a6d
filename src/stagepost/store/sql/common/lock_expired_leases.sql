select
    id, attempts, crashes, locked_by, cancel_requested_at is not null, started_at is not null, batch_id, limit_key,
    task_name
from stagepost_job
where state = 'running'
  and lease_until < :now - :grace_us
order by lease_until
limit :most
for update skip locked
