select name, unfinished, openings, opened_at
from stagepost_gate
where name > :after
  [[and name = :name]]
order by name
limit :most
