select limit_key
from stagepost_limit_key
where limit_key = :limit_key
for update
