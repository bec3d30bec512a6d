-- Differs: names come through json_each.
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
        asked.value ->> 'name' as name, asked.value ->> 'limit_key' as limit_key,
        (
            select id
            from stagepost_job
            where blocked_on = asked.value ->> 'name' and state = 'blocked'
            order by priority desc, available_at, id
            limit 1
        ) as first_id
    from json_each(:names) as asked
) as wanted
left join stagepost_job as first on first.id = wanted.first_id
