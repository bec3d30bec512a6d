select
    exists (select 1 from stagepost_job where id between :first_id and :last_id)
    or exists (select 1 from stagepost_job_history where id between :first_id and :last_id)
