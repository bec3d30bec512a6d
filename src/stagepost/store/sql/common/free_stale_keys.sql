-- A key is part of its job's row: none outlives its job, and there is nothing to free.
select unique_key
from stagepost_job
where unique_key > :after and unique_key <= :until
  and 1 = 0
