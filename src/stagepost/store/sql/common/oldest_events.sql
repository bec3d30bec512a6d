select position, number, case when happened_at < :now - :older_us then 1 else 0 end
from stagepost_event
where position > 0
order by position
limit :most
