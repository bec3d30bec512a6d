select count(*)
from stagepost_dead_message
