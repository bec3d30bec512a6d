-- Differs: rows come through json_each.
insert into stagepost_schedule_run (schedule_name, due_at, job_id, fired_at)
select value ->> 'schedule_name', value ->> 'due_at', value ->> 'job_id', :now
from json_each(:runs)
where true
on conflict do nothing
returning job_id, fired_at
