-- Differs: one writer at a time needs no row locks; numbers come through json_each.
select stripe
from stagepost_limit_stripe
where stripe in (select value from json_each(:stripes))
