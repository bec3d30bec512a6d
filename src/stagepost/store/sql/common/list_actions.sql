select actor, action, detail, acted_at
from stagepost_audit
where subject = :subject
order by acted_at, id
