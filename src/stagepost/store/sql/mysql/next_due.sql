-- Differs: no partial indexes: one index tells when leases end and, of jobs without one, when they are due. Asked for
-- each state, so that its first entry is all that is read.
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
