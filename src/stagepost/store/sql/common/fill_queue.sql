update stagepost_queue
set full_at = :full_at
where name = :name
