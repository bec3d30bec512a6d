select count(*)
from stagepost_job_history
where state = :state
  and finished_at > :now - :window_us
