-- A unique index holds the keys of live jobs: none outlives its job, and there is no page to look through.
select unique_key
from stagepost_job
where unique_key > :after and 1 = 0
limit :most
