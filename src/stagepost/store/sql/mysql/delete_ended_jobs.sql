-- Differs: ids come through json_table.
delete failure
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_failure as failure force index (primary) on asked.id = failure.job_id
;
delete ended
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job_history as ended force index (primary) on asked.id = ended.id
