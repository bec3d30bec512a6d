-- Differs: the live jobs' keys are in a table of their own and outlive a job deleted by hand. A plain read sees
-- a key and its job, or neither: they are committed together. A key without its job is then locked and looked at again.
-- Another transaction that makes or restarts a job holds the row of its key until it commits; such a row is skipped.
select held.unique_key
from stagepost_live_key as held
left join stagepost_job as job force index (primary) on job.id = held.job_id
where held.unique_key > :after and held.unique_key <= :until
  and (job.unique_key is null or job.unique_key <> held.unique_key)
;
select held.unique_key
from json_table(:selected, '$[*]' columns (
    unique_key varchar(191) character set utf8mb4 collate utf8mb4_bin path '$'
)) as found
straight_join stagepost_live_key as held force index (primary) on held.unique_key = found.unique_key
for update skip locked
;
select held.unique_key
from json_table(:selected, '$[*]' columns (
    unique_key varchar(191) character set utf8mb4 collate utf8mb4_bin path '$'
)) as found
straight_join stagepost_live_key as held force index (primary) on held.unique_key = found.unique_key
left join stagepost_job as job force index (primary) on job.id = held.job_id
where job.unique_key is null or job.unique_key <> held.unique_key
;
delete held
from json_table(:selected, '$[*]' columns (
    unique_key varchar(191) character set utf8mb4 collate utf8mb4_bin path '$'
)) as found
straight_join stagepost_live_key as held force index (primary) on held.unique_key = found.unique_key
