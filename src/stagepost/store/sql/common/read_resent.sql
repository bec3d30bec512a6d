select queue_name, resent_at
from stagepost_channel
where resent_at is not null
