update stagepost_schedule
set next_due_at = :next_due_at, last_due_at = :last_due_at, fired_at = :now, held_until = null, error = null
where name = :name
  and next_due_at = :seen
