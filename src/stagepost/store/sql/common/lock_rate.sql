select full_at, full_at - :now
from stagepost_rate
where name = :name
for update
