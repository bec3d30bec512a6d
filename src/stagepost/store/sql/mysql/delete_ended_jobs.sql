-- Differs: ids come through json_table.
delete failure
from stagepost_failure as failure
join json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked on asked.id = failure.job_id
;
delete ended
from stagepost_job_history as ended
join json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked on asked.id = ended.id
