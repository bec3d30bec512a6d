update stagepost_queue
set max_running = :max_running, rate = :rate, burst = :burst, updated_at = :now
where name = :name
