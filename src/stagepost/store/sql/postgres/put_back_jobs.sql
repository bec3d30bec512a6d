-- Differs: ids come through json_array_elements_text.
update stagepost_job
set state = case when :delay_us::bigint > 0 then 'scheduled' else state end,
    available_at = case when :delay_us::bigint > 0 then :now + :delay_us else available_at end,
    sent_at = null,
    updated_at = :now
where id in (select json_array_elements_text(:ids::text::json)::uuid)
  and state = 'queued' and coalesce(sent_at, 0) <= :sent_before
returning id, queue_name, batch_id, state
