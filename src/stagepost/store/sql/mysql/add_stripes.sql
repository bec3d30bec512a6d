-- Differs: numbers come through json_table; no ON CONFLICT.
insert into stagepost_limit_stripe (stripe)
select wanted.stripe
from json_table(:stripes, '$[*]' columns (stripe integer path '$')) as wanted
on duplicate key update stripe = stagepost_limit_stripe.stripe
