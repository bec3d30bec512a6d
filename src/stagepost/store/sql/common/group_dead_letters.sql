select task_name, reason, count(*), min(finished_at), max(finished_at)
from stagepost_job_history
where reason is not null
group by reason, task_name
order by count(*) desc, reason, task_name
limit :most
