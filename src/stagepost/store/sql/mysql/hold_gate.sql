-- Differs: a shared lock, which blocks starting or ending a batch under the gate. MariaDB has no FOR SHARE.
select unfinished, on_open
from stagepost_gate
where name = :name
lock in share mode
