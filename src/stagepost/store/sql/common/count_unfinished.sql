select count(*)
from stagepost_batch
where gate = :gate
  and state in ('open', 'sealed')
