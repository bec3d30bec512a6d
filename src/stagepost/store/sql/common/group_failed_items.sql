select reason, task_name, state, count(*), min(item_key), max(finished_at)
from stagepost_job_history
where id between :first_id and :last_id
  and batch_id = :batch_id
  and state in ('dead_letter', 'failed')
group by reason, task_name, state
order by count(*) desc, reason, task_name, state
limit :most
