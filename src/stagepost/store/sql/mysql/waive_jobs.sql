-- Differs: ids come through json_table.
select
    ended.id, ended.queue_name, ended.batch_id, ended.state, ended.task_name, ended.attempts, ended.reason, ended.context,
    coalesce(
        (select level.level from stagepost_event_level as level where level.task_name = ended.task_name),
        (select level.level from stagepost_event_level as level where level.task_name = ''),
        'final'
    )
from json_table(:ids, '$[*]' columns (id char(36) character set ascii path '$')) as asked
straight_join stagepost_job_history as ended force index (primary) on ended.id = asked.id
where ended.state in ('dead_letter', 'failed')
for update
;
update json_table(:selected, '$[*]' columns (id char(36) character set ascii path '$')) as held
straight_join stagepost_job_history as ended force index (primary) on held.id = ended.id
set ended.state = 'waived'
