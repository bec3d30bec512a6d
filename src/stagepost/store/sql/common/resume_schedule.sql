-- The order matters: MySQL assigns from left to right, and later expressions see the new values.
update stagepost_schedule
set declared_at = case when orphaned_at is null then declared_at end,
    orphaned_at = null,
    paused_at = null,
    next_due_at = :next_due_at,
    updated_at = :now
where name = :name
