insert into stagepost_outbox (routing_key, message_id, correlation_id, headers, encoding, body, created_at)
values (:routing_key, :message_id, :correlation_id, :headers, :encoding, :body, :now)
