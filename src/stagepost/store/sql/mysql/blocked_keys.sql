-- Differs: no partial indexes: the index of limits has the state of limited jobs only.
select distinct limit_key
from stagepost_job
where limit_key is not null and limit_state = 'blocked'
order by limit_key
limit :most
