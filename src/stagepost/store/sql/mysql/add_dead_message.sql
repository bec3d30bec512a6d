-- Differs: no ON CONFLICT.
insert into stagepost_dead_message (
    id, queue_name, routing_key, message_id, correlation_id, reason, error, headers, encoding, body, received_at
)
values (
    :id, :queue_name, :routing_key, :message_id, :correlation_id, :reason, :error, :headers, :encoding, :body, :now
)
on duplicate key update id = stagepost_dead_message.id
