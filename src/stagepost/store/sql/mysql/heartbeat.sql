-- Differs: no UPDATE ... RETURNING, so the row is locked and read, then changed.
select id
from stagepost_worker
where id = :id
for update
;
update stagepost_worker
set running = :running, seen_at = :now, looked_at = :now - :looked_us
where id = :id
