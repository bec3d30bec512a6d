insert into stagepost_batch (
    id, batch_key, kind, state, gate, on_failed, owner_id, first_id, last_id, position, on_complete,
    created_at, updated_at
)
values (
    :id, :batch_key, :kind, 'open', :gate, :on_failed, :owner_id, :first_id, :last_id, 0, :on_complete, :now, :now
)
on conflict do nothing
