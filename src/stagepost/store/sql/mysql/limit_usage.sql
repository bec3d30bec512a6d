-- Differs: no partial indexes: the index of limits has the state of limited jobs only.
select count(*)
from stagepost_job
where limit_key = :limit_key
  and limit_state in ('queued', 'running')
