update stagepost_batch
set result = :result,
    on_complete = :ending,
    updated_at = :now
where id = :id
