update stagepost_stream
set pruned_position = :pruned_position
where id = 1
