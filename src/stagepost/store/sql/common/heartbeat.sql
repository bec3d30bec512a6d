update stagepost_worker
set running = :running, seen_at = :now, looked_at = :now - :looked_us
where id = :id
returning id
