insert into stagepost_stream (id, last_position, pruned_position)
values (1, 0, 0)
on conflict do nothing
