select name, owner, term, expires_at
from stagepost_leader
where expires_at > :now
order by name
