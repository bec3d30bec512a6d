-- Differs: rows come through json_each.
select ended.id, ended.attempts
from json_each(:changes) as change
join stagepost_job_history as ended on ended.id = change.value ->> 'id'
where ended.attempts = change.value ->> 'attempt' and coalesce(ended.processed_by, '') = change.value ->> 'owner'
