-- Differs: rows come through json_to_recordset.
select ended.id, ended.attempts
from json_to_recordset(:changes::text::json) as change (id uuid, attempt integer, owner text)
join stagepost_job_history as ended on ended.id = change.id
where ended.attempts = change.attempt and coalesce(ended.processed_by, '') = change.owner
