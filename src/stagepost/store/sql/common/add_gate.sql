insert into stagepost_gate (name, unfinished, openings, updated_at)
values (:name, 0, 0, :now)
on conflict do nothing
