delete from stagepost_schedule_run
where fired_at <= :until
