-- Differs: rows come through json_to_recordset.
insert into stagepost_schedule_run (schedule_name, due_at, job_id, fired_at)
select schedule_name, due_at, job_id, :now
from json_to_recordset(:runs::text::json) as run (schedule_name text, due_at bigint, job_id uuid)
on conflict do nothing
returning job_id, fired_at
