-- Differs: ids come through json_array_elements_text.
update stagepost_job
set state = 'queued', updated_at = :now
where id in (select json_array_elements_text(:ids::text::json)::uuid)
  and state = 'blocked'
returning id, queue_name, batch_id
