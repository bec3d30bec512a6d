select carried_since
from stagepost_channel
where queue_name = :queue_name
