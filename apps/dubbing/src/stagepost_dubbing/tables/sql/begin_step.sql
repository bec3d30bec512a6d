insert into task_steps (task_id, step, part, attempt, status, trace_id, owner, progress, started_at)
values (:task_id, :step, :part, :attempt, 'running', :trace_id, :owner, 0, now_us())
