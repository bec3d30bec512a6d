select id
from stagepost_job
where id < :before
order by id desc
limit 1 offset :look
