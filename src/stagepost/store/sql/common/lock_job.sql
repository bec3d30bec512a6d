select attempts, locked_by, state
from stagepost_job
where id = :id
for update
