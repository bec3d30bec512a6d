select name
from stagepost_rate
where name > :after
order by name
limit :most
