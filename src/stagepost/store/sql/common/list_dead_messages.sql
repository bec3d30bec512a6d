select
    id, queue_name, routing_key, message_id, correlation_id, reason, error, headers, encoding, body, received_at
from stagepost_dead_message
where received_at <= :before_at
  and (received_at < :before_at or id < :before_id)
  [[and queue_name = :queue_name]]
  [[and reason = :reason]]
order by received_at desc, id desc
limit :most
