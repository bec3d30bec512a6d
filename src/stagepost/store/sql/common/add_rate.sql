insert into stagepost_rate (name, full_at)
values (:name, 0)
on conflict do nothing
