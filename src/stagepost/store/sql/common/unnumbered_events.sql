select id, number
from stagepost_event
where position is null
order by id
limit :most
