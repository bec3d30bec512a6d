-- Differs: ON DUPLICATE KEY has no condition and returns nothing; assignments run from left to right.
insert into stagepost_leader (name, owner, term, expires_at)
values (:name, :owner, 1, :now + :term_us)
on duplicate key update
    term = case when expires_at <= :now then term + 1 else term end,
    owner = case when expires_at <= :now then :owner else owner end,
    expires_at = case when owner = :owner then :now + :term_us else expires_at end
;
select term, expires_at
from stagepost_leader
where name = :name
  and owner = :owner and expires_at > :now
for update
