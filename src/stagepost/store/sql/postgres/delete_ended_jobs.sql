-- Differs: ids come through json_array_elements_text.
delete from stagepost_failure
where job_id in (select json_array_elements_text(:ids::text::json)::uuid)
;
delete from stagepost_job_history
where id in (select json_array_elements_text(:ids::text::json)::uuid)
