-- Differs: ids come through json_each.
delete from stagepost_failure
where job_id in (select value from json_each(:ids))
;
delete from stagepost_job_history
where id in (select value from json_each(:ids))
