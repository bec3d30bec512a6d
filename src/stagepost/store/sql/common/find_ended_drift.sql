-- One statement: rows and counts are of the same moment, however much is going on. Added up by the caller: to do it
-- here takes a temporary table, over which MariaDB 10.11 fell once.
select queue_name, state as class, 0 as counted, count(*) as found
from stagepost_job_history
where state = :state
group by queue_name, state
union all
select substr(scope, 7), class, jobs, 0
from stagepost_count
where scope >= 'queue:' and scope < 'queue;'
  and class = :state
union all
select substr(scope, 7), became, jobs, 0
from stagepost_move
where scope >= 'queue:' and scope < 'queue;'
  and became = :state
union all
select substr(scope, 7), was, -jobs, 0
from stagepost_move
where scope >= 'queue:' and scope < 'queue;'
  and was = :state
