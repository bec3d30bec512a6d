-- Differs: a write, though of nothing new: from here on nobody else writes until the transaction ends.
update stagepost_gate
set updated_at = updated_at
where name = :name
returning unfinished, on_open
