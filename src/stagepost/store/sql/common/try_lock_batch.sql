select id
from stagepost_batch
where id = :id
for update skip locked
