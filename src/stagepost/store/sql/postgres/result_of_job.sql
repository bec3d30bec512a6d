-- Differs: json is taken as text whatever the driver makes of json.
select state, result::text, error
from stagepost_job_history
where id = :id
union all
select state, null, null
from stagepost_job
where id = :id
