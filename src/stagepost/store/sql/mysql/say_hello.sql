-- Differs: no ON CONFLICT.
insert into stagepost_worker (id, host, pid, queues, tasks, slots, running, started_at, seen_at, looked_at)
values (:id, :host, :pid, :queues, :tasks, :slots, 0, :now, :now, :now)
on duplicate key update
    queues = :queues,
    tasks = :tasks,
    slots = :slots,
    seen_at = :now
