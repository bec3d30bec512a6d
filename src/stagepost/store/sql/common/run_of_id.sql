select
    id, run_key, pipeline, state, plan, input, steps, context, starts, error, cancelled_at, created_at, updated_at,
    ended_at
from stagepost_run
where id = :id
