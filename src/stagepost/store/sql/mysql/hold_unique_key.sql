-- Differs: ON DUPLICATE KEY has no condition and nothing is returned; assignments run from left to right.
insert into stagepost_unique_key (unique_key, job_id, held_until)
values (:unique_key, :id, :now + :held_us)
on duplicate key update
    job_id = case when held_until <= :now then :id else job_id end,
    held_until = case when job_id = :id then :now + :held_us else held_until end
;
select job_id
from stagepost_unique_key
where unique_key = :unique_key
  and job_id = :id
lock in share mode
