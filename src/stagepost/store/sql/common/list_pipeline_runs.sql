select
    id, run_key, pipeline, state, plan, input, steps, context, starts, error, cancelled_at, created_at, updated_at,
    ended_at
from stagepost_run
where id < :before
  [[and pipeline = :pipeline]]
  [[and state = :state]]
order by id desc
limit :most
