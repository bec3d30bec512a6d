-- Differs: live jobs' unique keys are in a separate table.
select max(page.unique_key)
from (
    select unique_key
    from stagepost_live_key
    where unique_key > :after
    order by unique_key
    limit :most
) as page
having max(page.unique_key) is not null
