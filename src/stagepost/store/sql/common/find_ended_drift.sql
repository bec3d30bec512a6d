-- One statement, so that rows and counts are of the same moment. The caller adds them up: grouping here needs a
-- temporary table, which once crashed MariaDB 10.11.
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
