select limit_key
from stagepost_limit_key
where limit_key > :after
order by limit_key
limit :most
