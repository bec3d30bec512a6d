-- Differs: can send notifications; the other databases cannot, and their workers poll.
select pg_notify('stagepost', :queue_names::text)
