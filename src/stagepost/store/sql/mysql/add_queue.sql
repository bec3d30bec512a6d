-- Differs: no ON CONFLICT.
insert into stagepost_queue (name, full_at, updated_at)
values (:name, 0, :now)
on duplicate key update name = stagepost_queue.name
