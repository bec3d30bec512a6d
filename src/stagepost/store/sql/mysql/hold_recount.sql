-- Differs: the way to change a row that exists. Its lock lasts until the transaction ends: one recounts at a time.
insert into stagepost_leader (name, owner, term, expires_at)
values ('recount', '', 0, 0)
on duplicate key update expires_at = 0
