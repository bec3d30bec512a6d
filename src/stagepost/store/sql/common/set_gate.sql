update stagepost_gate
set on_open = :on_open,
    updated_at = :now
where name = :name
