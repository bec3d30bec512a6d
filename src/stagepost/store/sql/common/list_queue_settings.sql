select name, paused_at, max_running, rate, burst
from stagepost_queue
order by name
