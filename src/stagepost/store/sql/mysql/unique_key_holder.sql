-- Differs: `behind` uses a locking read, to see commits newer than the caller's snapshot.
select job_id
from stagepost_unique_key
where unique_key = :unique_key
[[unless :behind and held_until > :now]]
[[and :behind = 1
lock in share mode]]
