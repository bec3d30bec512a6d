-- Differs: rows come through json_each.
update stagepost_job_history
set announced_at = :now
from json_each(:told) as notice
where stagepost_job_history.id = notice.value ->> 'id'
  and attempts = notice.value ->> 'attempt'
