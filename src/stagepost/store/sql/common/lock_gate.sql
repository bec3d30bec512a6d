select unfinished, on_open
from stagepost_gate
where name = :name
for update
