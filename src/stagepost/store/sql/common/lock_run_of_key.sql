-- A locking read, because the run may have been committed after this transaction's snapshot.
select
    id, run_key, pipeline, state, plan, input, steps, context, starts, error, cancelled_at, created_at, updated_at,
    ended_at
from stagepost_run
where pipeline = :pipeline
  and run_key = :run_key
for update
