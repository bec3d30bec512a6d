-- Differs: the caller adds up the moves: grouping here needs a temporary table, which once crashed MariaDB 10.11.
select substr(scope, 7) as queue_name, class, jobs
from stagepost_count
where scope >= 'queue:' and scope < 'queue;'
union all
select substr(scope, 7), became, jobs
from stagepost_move
where scope >= 'queue:' and scope < 'queue;'
  and became is not null
union all
select substr(scope, 7), was, -jobs
from stagepost_move
where scope >= 'queue:' and scope < 'queue;'
  and was is not null
union all
select queue_name, state, count(*)
from stagepost_job
where state = 'running'
group by queue_name, state
