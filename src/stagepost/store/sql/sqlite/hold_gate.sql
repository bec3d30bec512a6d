-- Differs: a write that changes nothing but locks out other writers until the transaction ends.
update stagepost_gate
set updated_at = updated_at
where name = :name
returning unfinished, on_open
