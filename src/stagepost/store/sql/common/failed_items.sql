select id
from stagepost_job_history
where id between :first_id and :last_id
  and batch_id = :batch_id
  and id > :after
  and state in ('dead_letter', 'failed')
order by id
limit :most
