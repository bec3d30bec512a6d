-- Nothing to do here: a key is part of its job's row and cannot outlive it.
select unique_key
from stagepost_job
where unique_key > :after and unique_key <= :until
  and 1 = 0
