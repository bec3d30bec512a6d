delete from stagepost_rate
where name > :after and name <= :until and full_at < :now - :full_us
