select task_name, level
from stagepost_event_level
