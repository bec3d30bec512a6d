-- Differs: rows come through json_to_recordset.
update stagepost_event as event
set position = numbered.position
from json_to_recordset(:rows::text::json) as numbered (id bigint, position bigint)
where event.id = numbered.id
  and event.position is null
