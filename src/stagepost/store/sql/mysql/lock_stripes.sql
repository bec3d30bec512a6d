-- Differs: numbers come through json_table, and are locked in the order in which they are given.
select share.stripe
from json_table(:stripes, '$[*]' columns (stripe integer path '$')) as wanted
straight_join stagepost_limit_stripe as share force index (primary) on share.stripe = wanted.stripe
for update
