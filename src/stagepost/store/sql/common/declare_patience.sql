update stagepost_channel
set patience_us = :patience_us
where queue_name = :queue_name
