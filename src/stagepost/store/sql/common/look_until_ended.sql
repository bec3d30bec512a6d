select id
from stagepost_job_history
where id < :before
order by id desc
limit 1 offset :look
