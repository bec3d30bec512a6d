-- Differs: no ON CONFLICT.
insert into stagepost_channel (queue_name, carried_since)
values (:queue_name, :now)
on duplicate key update queue_name = stagepost_channel.queue_name
