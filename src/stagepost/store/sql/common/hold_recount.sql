-- Locks the row until the transaction ends, so that only one recount runs at a time.
insert into stagepost_leader (name, owner, term, expires_at)
values ('recount', '', 0, 0)
on conflict (name) do update
set expires_at = 0
