-- Differs: the way to leave a row that exists alone.
insert into stagepost_limit_key (limit_key)
values (:limit_key)
on duplicate key update limit_key = stagepost_limit_key.limit_key
