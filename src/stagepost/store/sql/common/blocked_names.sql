-- Jumps from name to name through the index, however many jobs wait for each.
with recursive found (name, place) as (
    select min(blocked_on), 1
    from stagepost_job
    where blocked_on > :after and state = 'blocked'
    union all
    select
        (
            select min(blocked_on)
            from stagepost_job
            where blocked_on > found.name and state = 'blocked'
        ),
        found.place + 1
    from found
    where found.name is not null and found.place < :most
)
select name
from found
where name is not null
