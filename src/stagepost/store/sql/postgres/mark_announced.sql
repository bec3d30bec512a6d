-- Differs: rows come through json_to_recordset.
update stagepost_job_history as ended
set announced_at = :now
from json_to_recordset(:told::text::json) as notice (id uuid, attempt integer)
where ended.id = notice.id
  and ended.attempts = notice.attempt
