update tasks
set status = :status,
    error = case when :status = 'failed' then coalesce(:error, error) else :error end,
    finished_at = case when :status in ('done', 'failed', 'cancelled') then now_us() else null end,
    updated_at = now_us()
where id = :id
