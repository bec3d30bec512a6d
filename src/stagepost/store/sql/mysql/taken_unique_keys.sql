-- Differs: ids come through json_table; live jobs' unique keys are in a separate table; a locking read, to see commits
-- newer than the caller's snapshot.
select held.unique_key, held.job_id, ended.id
from json_table(:found, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id
straight_join stagepost_live_key as held force index (primary) on held.unique_key = ended.unique_key
lock in share mode
