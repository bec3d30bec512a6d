insert into stagepost_unique_key (unique_key, job_id, held_until)
values (:unique_key, :id, :now + :held_us)
on conflict (unique_key) do update
set job_id = excluded.job_id, held_until = excluded.held_until
where stagepost_unique_key.held_until <= :now or stagepost_unique_key.job_id = excluded.job_id
returning job_id
