select fired_at
from stagepost_schedule_run
where fired_at < :now - :older_us
order by fired_at
limit :most
