delete from stagepost_failure
where job_id >= :first_id and job_id <= :last_id
  and job_id in (
    select id
    from stagepost_job_history
    where queue_name = :queue_name and batch_id is null and id >= :first_id
  )
;
delete from stagepost_job_history
where id >= :first_id and id <= :last_id
  and queue_name = :queue_name
  and batch_id is null
;
delete from stagepost_job
where id >= :first_id and id <= :last_id
  and queue_name = :queue_name
  and batch_id is null
