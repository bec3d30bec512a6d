-- Starts with the row that holds event :first, which may be in its middle. Numbers may be missing if rows were deleted.
select position, happened_at, facts
from stagepost_event
where position >= coalesce((select max(earlier.position) from stagepost_event as earlier where earlier.position <= :first), 0)
  and position < :most + coalesce((select min(later.position) from stagepost_event as later where later.position >= :first), :first)
  and subject = 'job'
order by position
