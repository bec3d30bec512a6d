select id, limit_slots
from stagepost_job
where limit_key = :limit_key
  and state = 'blocked'
order by priority desc, available_at, id
limit :most
