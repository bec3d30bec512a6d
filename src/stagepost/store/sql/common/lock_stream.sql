select last_position, pruned_position
from stagepost_stream
where id = 1
for update
