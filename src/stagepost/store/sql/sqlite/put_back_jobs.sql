-- Differs: ids come through json_each.
update stagepost_job
set state = case when :delay_us > 0 then 'scheduled' else state end,
    available_at = case when :delay_us > 0 then :now + :delay_us else available_at end,
    crashes = crashes + :crashes,
    sent_at = null,
    progress = null,
    updated_at = :now
where id in (select value from json_each(:ids))
  and state = 'queued' and coalesce(sent_at, 0) <= :sent_before
returning id, queue_name, batch_id, state, attempts, crashes
