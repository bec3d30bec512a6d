-- Differs: rows come through json_to_recordset. Skips locked rows: progress is not worth waiting for.
with picked as (
    select job.id, report.progress
    from json_to_recordset(:reports::text::json) as report (id uuid, attempt integer, progress text)
    join stagepost_job as job on job.id = report.id
    where job.state = 'queued' and job.attempts = report.attempt - 1
    for update of job skip locked
)
update stagepost_job as job
set progress = picked.progress::json
from picked
where job.id = picked.id
returning job.id, job.attempts + 1
