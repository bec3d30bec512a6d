-- One statement, so that all numbers are of the same moment and running jobs can be subtracted from active ones.
select substr(scope, 7) as queue_name, class, jobs
from stagepost_count
where scope >= 'queue:' and scope < 'queue;'
union all
select substr(scope, 7), became, sum(jobs)
from stagepost_move
where scope >= 'queue:' and scope < 'queue;'
  and became is not null
group by scope, became
union all
select substr(scope, 7), was, -sum(jobs)
from stagepost_move
where scope >= 'queue:' and scope < 'queue;'
  and was is not null
group by scope, was
union all
select queue_name, state, count(*)
from stagepost_job
where state = 'running'
group by queue_name, state
