select
    id, batch_key, kind, state, gate, on_failed, owner_id, position, cursor_key, on_complete, result, outcome,
    cancelled_at, created_at, sealed_at, done_at
from stagepost_batch
where id = :id
