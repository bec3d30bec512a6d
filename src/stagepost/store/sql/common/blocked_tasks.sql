select queue_name, count(*), :now - min(available_at)
from (
    select queue_name, available_at
    from stagepost_job
    where blocked_on = :name and state = 'blocked'
    order by priority desc, available_at, id
    limit :most
) as first_
group by queue_name
order by queue_name
