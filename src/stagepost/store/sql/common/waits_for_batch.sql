-- The parent or run that may still read the items of a batch that is done.
select id
from stagepost_job
where id = :id
union all
select id
from stagepost_run
where id = :owner_id
  and state = 'running'
