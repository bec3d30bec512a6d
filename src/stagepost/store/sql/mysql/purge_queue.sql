-- Differs: live jobs' unique keys are in a separate table.
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
delete job, live_key
from stagepost_job as job
left join stagepost_live_key as live_key on live_key.unique_key = job.unique_key and live_key.job_id = job.id
where job.id >= :first_id and job.id <= :last_id
  and job.queue_name = :queue_name
  and job.batch_id is null
