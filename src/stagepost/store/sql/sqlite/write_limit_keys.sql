-- Differs: rows come through json_each.
update stagepost_job
set limit_key = asked.value ->> 'limit_key'
from json_each(:jobs) as asked
where stagepost_job.id = asked.value ->> 'id'
  and state = 'running' and attempts = asked.value ->> 'attempt' and locked_by = :owner
