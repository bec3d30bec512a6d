-- Differs: one writer at a time needs no row locks; rows come through json_each.
update stagepost_job
set state = case when asked.value ->> 'due_at' > :now then 'scheduled' else 'queued' end,
    available_at = case when asked.value ->> 'due_at' > :now then asked.value ->> 'due_at' else available_at end,
    blocked_on = case when :forgets = 1 then null else blocked_on end,
    updated_at = :now
from json_each(:jobs) as asked
where stagepost_job.id = asked.value ->> 'id'
  and state = 'blocked'
returning stagepost_job.id, queue_name, batch_id, state
