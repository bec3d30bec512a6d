-- Differs: one writer at a time needs no row locks; ids come through json_each.
select id
from stagepost_move
order by id
limit :most
;
insert into stagepost_count (scope, class, jobs)
select scope, class, sum(jobs)
from (
    select scope, became as class, jobs
    from stagepost_move
    where id in (select value from json_each(:selected)) and became is not null
    union all
    select scope, was, -jobs
    from stagepost_move
    where id in (select value from json_each(:selected)) and was is not null
)
group by scope, class
having sum(jobs) <> 0
on conflict (scope, class) do update
set jobs = stagepost_count.jobs + excluded.jobs
;
delete from stagepost_move
where id in (select value from json_each(:selected))
