-- One statement: all of it is of the same moment, so that what runs can be taken from what is active. Added up by the
-- caller, as in count_queues. Whoever only asks whether items live leaves out what runs: to find that, PostgreSQL walks
-- over the entries of all that ran since the last vacuum. And what is removed: only a batch that is done has any.
select class, jobs
from stagepost_count
where scope = :scope
union all
select became, jobs
from stagepost_move
where scope = :scope and became is not null
union all
select was, -jobs
from stagepost_move
where scope = :scope and was is not null
[[union all
select class, jobs
from stagepost_count
where scope = :removed_scope
union all
select became, jobs
from stagepost_move
where scope = :removed_scope and became is not null]]
[[union all
select state, count(*)
from stagepost_job
where state = 'running' and batch_id = :running_of
group by state]]
