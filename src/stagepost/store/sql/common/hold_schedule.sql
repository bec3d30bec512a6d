update stagepost_schedule
set held_until = :now + :hold_us, error = :error
where name = :name
  and next_due_at = :seen
