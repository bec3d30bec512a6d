update stagepost_stream
set last_position = :last_position
where id = 1
