-- Differs: the way to leave a row that exists alone.
insert into stagepost_rate (name, full_at)
values (:name, 0)
on duplicate key update name = stagepost_rate.name
