insert into stagepost_channel (queue_name, carried_since)
values (:queue_name, :now)
on conflict do nothing
