select job_id
from stagepost_unique_key
where unique_key = :unique_key
