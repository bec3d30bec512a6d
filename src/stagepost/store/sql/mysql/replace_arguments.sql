-- Differs: checks without a lock whether the job can still be changed, so that a running job can end without waiting
-- for the caller's transaction.
select id
from stagepost_job
where id = :id
  and state in ('blocked', 'queued', 'retrying', 'scheduled')
;
select queue_name, batch_id, state
from stagepost_job
where id = :id
  and state in ('blocked', 'queued', 'retrying', 'scheduled') and :selected <> ''
for update
;
update stagepost_job
set payload = :payload,
    context = :context,
    state = case when :delay_us > 0 then 'scheduled' else state end,
    available_at = case
        when :delay_us <= 0 then available_at
        when created_at + :longest_us < :now + :delay_us then created_at + :longest_us
        else :now + :delay_us
    end,
    blocked_on = case when :delay_us > 0 then null else blocked_on end,
    sent_at = null,
    updated_at = :now
where id = :id
  and state in ('blocked', 'queued', 'retrying', 'scheduled') and :selected <> ''
