update stagepost_gate
set unfinished = unfinished + :by,
    updated_at = :now
where name = :name
