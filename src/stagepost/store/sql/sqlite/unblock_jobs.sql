-- Differs: ids come through json_each.
update stagepost_job
set state = 'queued', updated_at = :now
where id in (select value from json_each(:ids))
  and state = 'blocked'
returning id, queue_name, batch_id
