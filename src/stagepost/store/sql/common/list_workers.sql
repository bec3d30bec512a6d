select id, host, pid, queues, tasks, loops, slots, running, started_at, seen_at, looked_at, :now - seen_at
from stagepost_worker
order by started_at desc, id
