-- One statement, so that all numbers are of the same moment and running jobs can be subtracted from active ones. The
-- caller adds them up, as in count_queues. Running and deleted items are optional: to count running items, PostgreSQL
-- scans the index entries of all that ran since the last vacuum, and only a batch that is done has deleted items.
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
