update stagepost_gate
set unfinished = 0,
    openings = openings + 1,
    opened_at = :now,
    updated_at = :now
where name = :name
