-- Differs: live jobs' unique keys are in a separate table and outlive a job deleted by hand. A key and its job are
-- committed together, so a plain read sees both or neither. A key without a job is then locked and checked again. Skips
-- keys locked by another transaction, which is creating or restarting their job.
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
