select task_name, queue_name, count(*), :now - min(available_at)
from stagepost_job
where state = 'queued'
  and available_at <= :now - :older_us
group by task_name, queue_name
order by task_name, queue_name
