insert into stagepost_leader (name, owner, term, expires_at)
values (:name, :owner, 1, :now + :term_us)
on conflict (name) do update
set owner = excluded.owner,
    term = stagepost_leader.term + case when stagepost_leader.expires_at > :now then 0 else 1 end,
    expires_at = excluded.expires_at
where stagepost_leader.owner = excluded.owner or stagepost_leader.expires_at <= :now
returning term, expires_at
