-- The row's lock lasts until the transaction ends: one recounts at a time.
insert into stagepost_leader (name, owner, term, expires_at)
values ('recount', '', 0, 0)
on conflict (name) do update
set expires_at = 0
