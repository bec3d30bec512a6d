select count(*)
from stagepost_job
where limit_key = :limit_key
  and state in ('queued', 'running')
