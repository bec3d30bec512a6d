-- A key is part of its job's row: there is no page of others to look through.
select unique_key
from stagepost_job
where unique_key > :after and 1 = 0
limit :most
