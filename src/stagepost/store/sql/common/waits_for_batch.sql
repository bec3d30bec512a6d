-- Who reads the items of a batch even when it is done: the job whose children they are, and the run whose step.
select id
from stagepost_job
where id = :id
union all
select id
from stagepost_run
where id = :owner_id
  and state = 'running'
