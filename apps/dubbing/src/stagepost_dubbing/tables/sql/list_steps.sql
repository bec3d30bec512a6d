select step, part, attempt, status, trace_id, owner, progress, started_at, finished_at, error
from task_steps
where task_id = :task_id
order by part, attempt
