insert into stagepost_channel (queue_name)
values (:queue_name)
on conflict do nothing
