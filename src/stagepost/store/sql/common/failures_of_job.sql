select attempt, kind, error, traceback, owner, failed_at
from stagepost_failure
where job_id = :id
order by attempt
