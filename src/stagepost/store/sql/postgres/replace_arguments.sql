-- Differs: text must be cast to json, and delays to bigint, because a comparison with 0 makes them integer parameters.
select queue_name, batch_id, state
from stagepost_job
where id = :id
  and state in ('blocked', 'queued', 'retrying', 'scheduled')
for update
;
update stagepost_job
set payload = :payload::text::json,
    context = :context::text::json,
    state = case when :delay_us::bigint > 0 then 'scheduled' else state end,
    available_at = case
        when :delay_us::bigint <= 0 then available_at
        when created_at + :longest_us::bigint < :now + :delay_us::bigint then created_at + :longest_us::bigint
        else :now + :delay_us::bigint
    end,
    blocked_on = case when :delay_us::bigint > 0 then null else blocked_on end,
    sent_at = null,
    updated_at = :now
where id = :id
  and state in ('blocked', 'queued', 'retrying', 'scheduled')
