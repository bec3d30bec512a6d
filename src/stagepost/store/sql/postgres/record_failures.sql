-- Differs: rows come through json_to_recordset.
insert into stagepost_failure (job_id, attempt, kind, error, traceback, owner, failed_at)
select id, attempt, kind, error, traceback, owner, :now
from json_to_recordset(:failures::text::json) as failure (
    id uuid, attempt integer, kind text, error text, traceback text, owner text
)
on conflict do nothing
