delete from stagepost_unique_key
where held_until <= :until
