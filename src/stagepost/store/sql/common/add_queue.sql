insert into stagepost_queue (name, full_at, updated_at)
values (:name, 0, :now)
on conflict do nothing
