select received_at
from stagepost_dead_message
where received_at < :now - :older_us
order by received_at
limit :most
