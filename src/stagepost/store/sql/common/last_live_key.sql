-- Nothing to do here: a key is part of its job's row and cannot outlive it.
select unique_key
from stagepost_job
where unique_key > :after and 1 = 0
limit :most
