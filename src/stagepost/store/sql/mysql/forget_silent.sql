-- Differs: no DELETE ... RETURNING in MySQL, so the rows are locked and read, then deleted.
select id
from stagepost_worker
where seen_at < :now - :after_us
order by id
for update skip locked
;
delete worker
from stagepost_worker as worker
join json_table(:selected, '$[*]' columns (id varchar(64) path '$')) as silent on silent.id = worker.id
