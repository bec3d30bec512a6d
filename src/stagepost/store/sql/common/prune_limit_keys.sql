delete from stagepost_limit_key
where limit_key > :after and limit_key <= :until
  and not exists (select 1 from stagepost_job where stagepost_job.limit_key = stagepost_limit_key.limit_key)
