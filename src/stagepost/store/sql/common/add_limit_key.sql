insert into stagepost_limit_key (limit_key)
values (:limit_key)
on conflict do nothing
