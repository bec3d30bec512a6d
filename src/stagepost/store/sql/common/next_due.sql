select min(available_at) - :now
from stagepost_job
where state in ('retrying', 'scheduled')
