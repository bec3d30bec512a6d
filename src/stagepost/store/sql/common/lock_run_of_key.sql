-- Locked to see it as it is now: whoever has just made it may have committed after this transaction's first look.
select
    id, run_key, pipeline, state, plan, input, steps, context, starts, error, cancelled_at, created_at, updated_at,
    ended_at
from stagepost_run
where pipeline = :pipeline
  and run_key = :run_key
for update
