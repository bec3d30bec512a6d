delete from stagepost_worker
where seen_at < :now - :after_us
returning id
