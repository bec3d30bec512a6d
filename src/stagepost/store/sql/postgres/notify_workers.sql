-- Differs: sends a notification. Other databases cannot, and their workers poll.
select pg_notify('stagepost', :queue_names::text)
