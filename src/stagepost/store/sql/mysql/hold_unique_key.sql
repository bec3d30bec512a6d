-- Differs: ON DUPLICATE KEY has no condition and returns nothing; assignments run from left to right. Skips a key that
-- is held without locking it, because it cannot become free before its time.
select :id
from dual
where not exists (
    select 1 from stagepost_unique_key where unique_key = :unique_key and held_until > :now and job_id <> :id
)
;
insert into stagepost_unique_key (unique_key, job_id, held_until)
select :unique_key, wanted.id, :now + :held_us
from json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as wanted
on duplicate key update
    job_id = case when held_until <= :now then :id else job_id end,
    held_until = case when job_id = :id then :now + :held_us else held_until end
;
select job_id
from stagepost_unique_key
where unique_key = :unique_key
  and job_id = :id and :selected <> ''
lock in share mode
