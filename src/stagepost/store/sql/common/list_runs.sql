select schedule_name, due_at, job_id, fired_at
from stagepost_schedule_run
where schedule_name = :name
  and due_at < :before
order by due_at desc
limit :most
