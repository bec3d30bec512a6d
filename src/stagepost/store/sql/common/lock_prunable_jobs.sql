select id
from stagepost_job_history
where state = :state
  and finished_at < :now - :older_us
order by finished_at
limit :most
for update skip locked
