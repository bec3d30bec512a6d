insert into stagepost_run (
    id, run_key, pipeline, state, plan, input, steps, context, starts, created_at, updated_at
)
values (
    :id, :run_key, :pipeline, 'running', :plan, :input, :steps, :context, 1, :now, :now
)
on conflict do nothing
