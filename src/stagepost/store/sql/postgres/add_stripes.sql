-- Differs: numbers come through json_array_elements_text.
insert into stagepost_limit_stripe (stripe)
select json_array_elements_text(:stripes::text::json)::integer
on conflict do nothing
