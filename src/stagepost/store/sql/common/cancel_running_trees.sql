update stagepost_batch
set cancelled_at = :now,
    updated_at = :now
where cancelled_at is null
  and state <> 'done'
  and id in (
    select id
    from stagepost_job
    where id between :first_id and :last_id
      and batch_id = :batch_id
      and state = 'running'
      and has_children = 1
  )
