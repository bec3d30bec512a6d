select state, has_children, cancel_requested_at is not null, queue_name, batch_id
from stagepost_job
where id = :id
  and attempts = :attempt and coalesce(locked_by, '') = :owner
for update
