update stagepost_run
set state = :state,
    steps = :steps,
    starts = :starts,
    error = :error,
    cancelled_at = :cancelled_at,
    ended_at = :ended_at,
    updated_at = :now
where id = :id
