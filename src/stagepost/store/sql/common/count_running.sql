select queue_name, count(*)
from stagepost_job
where state = 'running'
group by queue_name
