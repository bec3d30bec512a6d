-- Differs: cannot jump from name to name through an index, so it returns the names of the next jobs.
select distinct blocked_on
from (
    select blocked_on
    from stagepost_job
    where blocked_on > :after and blocked_state = 'blocked'
    order by blocked_on
    limit 1000
) as next_
order by blocked_on
limit :most
