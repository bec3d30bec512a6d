select queue_name, reason, count(*), min(received_at), max(received_at)
from stagepost_dead_message
group by reason, queue_name
order by count(*) desc, reason, queue_name
limit :most
