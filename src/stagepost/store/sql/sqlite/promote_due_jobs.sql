-- Differs: one writer at a time needs no row locks; ids come through json_each. Reads first, because UPDATE ...
-- RETURNING returns only the new state.
select id, queue_name, batch_id, state, case when limit_slots is null then 'queued' else 'blocked' end
from stagepost_job
where state in ('retrying', 'scheduled')
  and available_at <= :now
order by available_at
limit :most
;
update stagepost_job
set state = case when limit_slots is null then 'queued' else 'blocked' end,
    blocked_on = case when limit_slots is null then blocked_on else 'limit:' || limit_key end,
    updated_at = :now
where id in (select value from json_each(:selected))
