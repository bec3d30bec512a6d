-- Differs: no UPDATE ... RETURNING; rows come through json_table, and are locked and read first. Skips locked
-- rows: progress is not worth waiting for.
select job.id, job.attempts + 1
from json_table(:reports, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt'
)) as report
straight_join stagepost_job as job force index (primary) on job.id = report.id
where job.state = 'queued' and job.attempts = report.attempt - 1
for update skip locked
;
update json_table(:reports, '$[*]' columns (
    id char(36) character set ascii path '$.id', attempt integer path '$.attempt',
    progress longtext character set utf8mb4 path '$.progress'
)) as report
straight_join stagepost_job as job force index (primary) on job.id = report.id
set job.progress = report.progress
where locate(report.id, :selected)
  and job.state = 'queued' and job.attempts = report.attempt - 1
