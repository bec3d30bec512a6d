-- Differs: numbers come through json_each.
insert into stagepost_limit_stripe (stripe)
select value
from json_each(:stripes)
where true
on conflict do nothing
