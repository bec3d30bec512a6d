-- Differs: no partial indexes, so one index holds the end of leases and the due times of jobs without a lease. One
-- query for each state, so that only the first index entry is read.
select min(available_at) - :now
from (
    select min(available_at) as available_at
    from stagepost_job
    where state = 'retrying' and lease_until is null
    union all
    select min(available_at)
    from stagepost_job
    where state = 'scheduled' and lease_until is null
) as first_of_state
