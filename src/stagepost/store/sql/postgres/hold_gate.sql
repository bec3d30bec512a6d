-- Differs: a shared lock, which blocks starting or ending a batch under the gate.
select unfinished, on_open
from stagepost_gate
where name = :name
for share
