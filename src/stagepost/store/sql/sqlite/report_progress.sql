-- Differs: one writer at a time needs no row locks; rows come through json_each.
update stagepost_job
set progress = report.value ->> 'progress'
from json_each(:reports) as report
where stagepost_job.id = report.value ->> 'id'
  and state = 'queued' and attempts = (report.value ->> 'attempt') - 1
returning stagepost_job.id, attempts + 1
