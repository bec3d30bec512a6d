-- Differs: forces the index, because the planner may sort all queued jobs instead.
select count(*), max(:now - available_at)
from (
    select available_at
    from stagepost_job force index (stagepost_job_claim)
    where state = 'queued'
      and queue_name = :queue_name
      and sent_at is null
    order by priority desc, available_at, id
    limit :most
) as waiting
