-- Differs: names come through json_to_recordset.
select
    wanted.name,
    (
        select count(*)
        from stagepost_job
        where limit_key = wanted.limit_key and state = 'running'
    ),
    (
        select count(*)
        from stagepost_job
        where blocked_on = wanted.name and state in ('queued', 'scheduled')
    ),
    wanted.first_id, first.task_name, first.limit_slots
from (
    select
        asked.name as name, asked.limit_key as limit_key,
        (
            select id
            from stagepost_job
            where blocked_on = asked.name and state = 'blocked'
            order by priority desc, available_at, id
            limit 1
        ) as first_id
    from json_to_recordset(:names::text::json) as asked (name text, limit_key text)
) as wanted
left join stagepost_job as first on first.id = wanted.first_id
