select distinct queue_name
from stagepost_job
where sent_at is not null
