select held_until
from stagepost_unique_key
where held_until < :now - :older_us
order by held_until
limit :most
