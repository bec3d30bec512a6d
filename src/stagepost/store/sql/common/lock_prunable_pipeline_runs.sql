select id, steps
from stagepost_run
where ended_at < :now - :older_us
order by ended_at
limit :most
for update skip locked
