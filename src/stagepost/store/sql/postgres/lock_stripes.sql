-- Differs: numbers come through json_array_elements_text.
select stripe
from stagepost_limit_stripe
where stripe = any (array(select json_array_elements_text(:stripes::text::json)::integer))
order by stripe
for update
