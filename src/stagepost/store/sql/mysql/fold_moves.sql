-- Differs: locks the moves, adds them up, then deletes them. Sorted, because folding the same counts in opposite order
-- would deadlock.
select id
from stagepost_move
order by id
limit :most
for update skip locked
;
insert into stagepost_count (scope, class, jobs)
select scope, class, jobs
from (
    select scope, class, sum(jobs) as jobs
    from (
        select move.scope, move.became as class, move.jobs
        from json_table(:selected, '$[*]' columns (id bigint path '$')) as picked
        straight_join stagepost_move as move force index (primary) on move.id = picked.id
        where move.became is not null
        union all
        select move.scope, move.was, -move.jobs
        from json_table(:selected, '$[*]' columns (id bigint path '$')) as picked
        straight_join stagepost_move as move force index (primary) on move.id = picked.id
        where move.was is not null
    ) as change_
    group by scope, class
    having sum(jobs) <> 0
    order by scope, class
) as added
on duplicate key update jobs = stagepost_count.jobs + added.jobs
;
delete move
from json_table(:selected, '$[*]' columns (id bigint path '$')) as picked
straight_join stagepost_move as move force index (primary) on picked.id = move.id
