-- Differs: no DELETE ... RETURNING in MySQL, so the rows are locked and read, then deleted.
select id
from stagepost_worker
where seen_at < :now - :after_us
order by id
for update skip locked
;
delete worker
from json_table(:selected, '$[*]' columns (id varchar(64) character set utf8mb4 path '$')) as silent
straight_join stagepost_worker as worker force index (primary) on silent.id = worker.id
