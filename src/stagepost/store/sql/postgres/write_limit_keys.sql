-- Differs: rows come through json_to_recordset.
update stagepost_job as job
set limit_key = asked.limit_key
from json_to_recordset(:jobs::text::json) as asked (id uuid, attempt integer, limit_key text)
where job.id = asked.id
  and job.state = 'running' and job.attempts = asked.attempt and job.locked_by = :owner
