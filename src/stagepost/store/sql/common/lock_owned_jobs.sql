select id, attempts
from stagepost_job
where state = 'running'
  and locked_by = :owner
order by id
for update
