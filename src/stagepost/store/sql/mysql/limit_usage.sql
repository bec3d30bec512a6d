-- Differs: names come through json_table; no partial indexes, so they have columns of their own for states.
select
    wanted.name,
    (
        select count(*)
        from stagepost_job
        where running_key = wanted.limit_key
    ),
    (
        select count(*)
        from stagepost_job
        where blocked_on = wanted.name and blocked_state in ('queued', 'scheduled')
    ),
    wanted.first_id, first.task_name, first.limit_slots
from (
    select
        asked.name as name, asked.limit_key as limit_key,
        (
            select id
            from stagepost_job
            where blocked_on = asked.name and blocked_state = 'blocked'
            order by priority desc, available_at, id
            limit 1
        ) as first_id
    from json_table(:names, '$[*]' columns (
        name varchar(200) character set utf8mb4 path '$.name',
        limit_key varchar(191) character set utf8mb4 path '$.limit_key'
    )) as asked
) as wanted
left join stagepost_job as first force index (primary) on first.id = wanted.first_id
