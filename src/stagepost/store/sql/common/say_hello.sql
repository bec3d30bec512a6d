insert into stagepost_worker (id, host, pid, queues, tasks, loops, slots, running, started_at, seen_at, looked_at)
values (:id, :host, :pid, :queues, :tasks, :loops, :slots, 0, :now, :now, :now)
on conflict (id) do update
set queues = excluded.queues,
    tasks = excluded.tasks,
    loops = excluded.loops,
    slots = excluded.slots,
    seen_at = excluded.seen_at
