-- Differs: one writer at a time needs no row locks.
update stagepost_job
set state = case when limit_key is null then 'queued' else 'blocked' end,
    updated_at = :now
where id in (
    select id
    from stagepost_job
    where state in ('retrying', 'scheduled')
      and available_at <= :now
    order by available_at
    limit :most
)
returning id
