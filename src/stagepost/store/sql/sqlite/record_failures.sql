-- Differs: rows come through json_each.
insert into stagepost_failure (job_id, attempt, kind, error, traceback, owner, failed_at)
select
    value ->> 'id', value ->> 'attempt', value ->> 'kind', value ->> 'error', value ->> 'traceback',
    value ->> 'owner', :now
from json_each(:failures)
where true
on conflict do nothing
