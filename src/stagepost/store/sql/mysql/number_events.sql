-- Differs: rows come through json_table.
update json_table(:rows, '$[*]' columns (id bigint path '$.id', position bigint path '$.position')) as numbered
straight_join stagepost_event as event force index (primary) on event.id = numbered.id
set event.position = numbered.position
where event.position is null
