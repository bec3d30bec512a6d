-- Differs: others may hold it too; who begins or ends a batch under it has to wait. MariaDB has no FOR SHARE.
select unfinished, on_open
from stagepost_gate
where name = :name
lock in share mode
