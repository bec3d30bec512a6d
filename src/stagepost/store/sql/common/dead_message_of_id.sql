select
    id, queue_name, routing_key, message_id, correlation_id, reason, error, headers, encoding, body, received_at
from stagepost_dead_message
where id = :id
