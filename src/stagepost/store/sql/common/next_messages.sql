select id, routing_key, message_id, correlation_id, headers, encoding, body
from stagepost_outbox
where id > :after
order by id
limit :most
