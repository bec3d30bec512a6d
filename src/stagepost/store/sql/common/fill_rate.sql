update stagepost_rate
set full_at = :full_at
where name = :name
