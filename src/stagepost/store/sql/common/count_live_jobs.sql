select queue_name, state, count(*), :now - min(available_at)
from stagepost_job
group by queue_name, state
