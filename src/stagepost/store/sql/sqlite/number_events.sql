-- Differs: rows come through json_each.
update stagepost_event
set position = numbered.value ->> 'position'
from json_each(:rows) as numbered
where stagepost_event.id = numbered.value ->> 'id'
  and position is null
