-- One statement, so that rows and counts are of the same moment. The caller adds them up, as in find_live_drift.
select
    case when state in ('queued', 'running') then 'active' else state end as class, 0 as counted, count(*) as found
from stagepost_job
where id between :first_id and :last_id
  and batch_id = :id
group by state
union all
select state, 0, count(*)
from stagepost_job_history
where id between :first_id and :last_id
  and batch_id = :id
group by state
union all
select class, jobs, 0
from stagepost_count
where scope = :scope
union all
select became, jobs, 0
from stagepost_move
where scope = :scope and became is not null
union all
select was, -jobs, 0
from stagepost_move
where scope = :scope and was is not null
