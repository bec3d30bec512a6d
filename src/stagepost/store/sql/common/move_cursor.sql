update stagepost_batch
set position = :position,
    cursor_key = :cursor_key,
    updated_at = :now
where id = :id
  and position < :position
