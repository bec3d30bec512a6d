select step, part, attempt, status, trace_id, owner, progress, started_at, finished_at, error
from task_steps
where task_id = :task_id and step = :step and part = :part
order by attempt desc
limit 1
