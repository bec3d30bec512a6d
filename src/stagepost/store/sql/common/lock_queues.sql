select name, paused_at, max_running, rate, burst, full_at, full_at - :now
from stagepost_queue
where name in (:name, :global_name)
order by name
for update
