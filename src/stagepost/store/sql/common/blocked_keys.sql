select distinct limit_key
from stagepost_job
where limit_key is not null and state = 'blocked'
order by limit_key
limit :most
