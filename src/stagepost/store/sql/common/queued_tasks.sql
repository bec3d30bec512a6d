select task_name, count(*), :now - min(available_at)
from (
    select task_name, available_at
    from (
        select task_name, available_at
        from stagepost_job
        where state = 'queued'
          and queue_name = :queue_name
          and sent_at is null
        order by priority desc, available_at, id
        limit :most
    ) as unsent
    union all
    select task_name, available_at
    from (
        select task_name, available_at
        from stagepost_job
        where state = 'queued'
          and queue_name = :queue_name
          and sent_at > 0
        order by sent_at
        limit :most
    ) as sent
) as next_
where available_at <= :now - :older_us
group by task_name
order by task_name
