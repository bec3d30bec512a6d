-- Differs: rows come through json_to_recordset.
select asked.id, job.id
from json_to_recordset(:jobs::text::json) as asked (id uuid)
join stagepost_job as job on job.id = asked.id
union all
select asked.id, job.id
from json_to_recordset(:jobs::text::json) as asked (id uuid, unique_key text)
join stagepost_job as job on job.unique_key = asked.unique_key
union all
select asked.id, ended.id
from json_to_recordset(:jobs::text::json) as asked (id uuid)
join stagepost_job_history as ended on ended.id = asked.id
