select :now - empty_since, :now - active_at, :now - looked_at, patience_us
from stagepost_channel
where queue_name = :queue_name
