-- Differs: no partial indexes: the index of limits has the state of limited jobs only.
select id, limit_slots
from stagepost_job
where limit_key = :limit_key
  and limit_state = 'blocked'
order by priority desc, available_at, id
limit :most
