-- Differs: text must be cast to json and uuid.
update stagepost_job
set payload = cast(:payload as json),
    context = cast(:context as json),
    state = case when :delay_us > 0 then 'scheduled' else state end,
    available_at = case when :delay_us > 0 then :now + :delay_us else available_at end,
    updated_at = :now
where id = :id
  and state in ('blocked', 'queued', 'retrying', 'scheduled')
