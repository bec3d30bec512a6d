-- Differs: locks, deletes and adds up in one statement. Sorted, because folding the same counts in
-- opposite order would deadlock.
with oldest as (
    select id
    from stagepost_move
    order by id
    limit :most
    for update skip locked
),
folded as (
    delete from stagepost_move as move
    using oldest
    where move.id = oldest.id
    returning move.id, move.scope, move.was, move.became, move.jobs
),
added as (
    insert into stagepost_count (scope, class, jobs)
    select scope, class, sum(jobs)
    from (
        select scope, became as class, jobs
        from folded
        where became is not null
        union all
        select scope, was, -jobs
        from folded
        where was is not null
    ) as change
    group by scope, class
    having sum(jobs) <> 0
    order by scope, class
    on conflict (scope, class) do update
    set jobs = stagepost_count.jobs + excluded.jobs
)
select id
from folded
