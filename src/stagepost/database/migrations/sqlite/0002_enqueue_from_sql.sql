-- Enqueues a job for programs in any language, in their own transaction: they insert into this view, and its columns
-- are the options. docs/how-to/enqueue-from-sql.md describes it. It also shows the live jobs, so that a program finds
-- the id that belongs to its unique key.
create view stagepost_enqueue_v1 (
    task, arguments, queue, priority, delay, at, max_attempts, unique_key, unique_for, id, max_running, limit_by
) as
select
    task_name, payload, queue_name, priority, null, available_at / 1e6, max_attempts, unique_key, null, id,
    limit_slots, substr(limit_key, length(task_name) + 2)
from stagepost_job;

-- What the view above gets, with defaults filled in: the moment and the id are read once and then used often.
create view stagepost_enqueue_filled_v1 (
    task, arguments, queue, priority, delay_us, at, max_attempts, unique_key, unique_for_us, id, chosen, now, max_running,
    limit_key, state
) as
select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
where 0;

create trigger stagepost_enqueue_v1_insert instead of insert on stagepost_enqueue_v1
begin
    -- The policy of the outermost statement (INSERT OR REPLACE) holds for all that follow, so none relies on a conflict.
    select case
        when new.task is null or typeof(new.task) <> 'text' or length(new.task) not between 1 and 191
            or new.task glob '*[^A-Za-z0-9_.:-]*' or new.task not glob '[A-Za-z0-9_]*'
            or length(cast(new.task as blob)) <> length(new.task)
            then raise(abort, 'stagepost: task: use 1 to 191 letters, digits and _ . : - (not beginning with . : -).')
        when new.arguments is not null and (typeof(new.arguments) <> 'text' or not json_valid(new.arguments))
            then raise(abort, 'stagepost: arguments are not JSON: give an object with one field per parameter.')
        when new.arguments is not null and json_type(new.arguments) <> 'object'
            then raise(abort, 'stagepost: arguments are not a JSON object: give one field per parameter.')
        when new.queue is not null and (
            typeof(new.queue) <> 'text' or length(new.queue) not between 1 and 191
            or new.queue glob '*[^A-Za-z0-9_.:-]*' or new.queue not glob '[A-Za-z0-9_]*'
            or length(cast(new.queue as blob)) <> length(new.queue)
        )
            then raise(abort, 'stagepost: queue: use 1 to 191 letters, digits and _ . : - (not beginning with . : -).')
        when new.priority is not null
            and (typeof(new.priority) <> 'integer' or new.priority not between -32768 and 32767)
            then raise(abort, 'stagepost: priority must be a whole number between -32768 and 32767; larger runs first.')
        when new.max_attempts is not null
            and (typeof(new.max_attempts) <> 'integer' or new.max_attempts not between 1 and 2147483647)
            then raise(abort, 'stagepost: max_attempts must be a whole number, 1 or more.')
        when new.delay is not null
            and (typeof(new.delay) not in ('integer', 'real') or new.delay not between 0 and 36500 * 86400)
            then raise(abort, 'stagepost: delay must be a number of seconds between 0 and 100 years.')
        when new.at is not null and (typeof(new.at) not in ('integer', 'real') or abs(new.at) > 253402300799)
            then raise(abort, 'stagepost: at must be a number of seconds since 1970, such as unixepoch(''2030-01-01'').')
        when new.at is not null and new.delay > 0
            then raise(abort, 'stagepost: set either delay or at, not both.')
        when new.unique_for is not null
            and (typeof(new.unique_for) not in ('integer', 'real') or new.unique_for not between 0 and 36500 * 86400)
            then raise(abort, 'stagepost: unique_for must be a number of seconds between 0 and 100 years.')
        when new.unique_for is not null and new.unique_key is null
            then raise(abort, 'stagepost: unique_for needs a unique_key: set both, or neither.')
        when new.unique_key is not null
            and (typeof(new.unique_key) <> 'text' or length(new.unique_key) not between 1 and 191
                or instr(new.unique_key, char(0)))
            then raise(abort, 'stagepost: unique_key must be a text of 1 to 191 characters.')
        when new.unique_key <> trim(new.unique_key, char(9, 10, 11, 12, 13, 32))
            then raise(abort, 'stagepost: unique_key begins or ends with white space. Strip it.')
        when new.max_running is not null
            and (typeof(new.max_running) <> 'integer' or new.max_running not between 1 and 2147483647)
            then raise(abort, 'stagepost: max_running must be a whole number, 1 or more.')
        when new.limit_by is not null and new.max_running is null
            then raise(abort, 'stagepost: limit_by needs max_running: set both, or neither.')
        when new.limit_by is not null and (typeof(new.limit_by) <> 'text'
            or length(new.task) + length(new.limit_by) > 190 or instr(new.limit_by, char(0)))
            then raise(abort, 'stagepost: limit_by must be a text; it and task have at most 190 characters together.')
        when new.id is not null and (
            typeof(new.id) <> 'text' or length(new.id) <> 36 or length(cast(new.id as blob)) <> 36
            or replace(new.id, '-', '') glob '*[^0-9A-Fa-f]*' or length(replace(new.id, '-', '')) <> 32
            or substr(new.id, 9, 1) || substr(new.id, 14, 1) || substr(new.id, 19, 1) || substr(new.id, 24, 1) <> '----'
        )
            then raise(abort, 'stagepost: id must be a UUID, such as 019a8a56-0f3e-7c44-a7d1-2b9c1d0e5a03.')
    end;
    insert into stagepost_enqueue_filled_v1
    select
        new.task, coalesce(new.arguments, '{}'), coalesce(new.queue, 'default'), coalesce(new.priority, 0),
        cast(round(coalesce(new.delay, 0) * 1000000) as integer), cast(round(new.at * 1000000) as integer),
        coalesce(new.max_attempts, 5), new.unique_key, cast(round(new.unique_for * 1000000) as integer),
        coalesce(lower(new.id), (
            select
                substr(stamp, 5, 8) || '-' || substr(stamp, 13) || '-7' || substr(tail, 1, 3) || '-'
                || substr('89ab', 1 + abs(random() % 4), 1) || substr(tail, 4, 3) || '-' || substr(tail, 7, 12)
            from (
                select
                    printf('%016x', cast(round((julianday('now') - 2440587.5) * 86400000) as integer)) as stamp,
                    lower(hex(randomblob(9))) as tail
            )
        )),
        new.id is not null, moment.now, new.max_running,
        case when new.max_running is not null then new.task || coalesce(':' || new.limit_by, '') end,
        case
            when coalesce(new.at, 0) * 1000000 > moment.now or new.delay > 0 then 'scheduled'
            when new.max_running is not null then 'blocked'
            else 'queued'
        end
    from (select cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000 as now) as moment;
end;

-- What insert_job.sql, hold_unique_key.sql and chosen_ids.py decide, it decides in the same way. Only one connection
-- writes at a time, so what a statement has looked up is still true in the next.
create trigger stagepost_enqueue_filled_v1_insert instead of insert on stagepost_enqueue_filled_v1
begin
    -- Not compared if Stagepost itself may have replaced the arguments.
    select raise(abort, 'stagepost: this id belongs to a job of another task or with other arguments.')
    from (
        select task_name, payload from stagepost_job where id = new.id
        union all
        select task_name, payload from stagepost_job_history where id = new.id
    ) as known
    where new.chosen and new.unique_key is null
      and (known.task_name <> new.task or json(known.payload) <> json(new.arguments))
      and not exists (select 1 from stagepost_batch where id = new.id);
    insert into stagepost_job (
        id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
        unique_key, limit_key, limit_slots, blocked_on, payload, created_at, updated_at
    )
    select
        new.id, new.queue, new.task, new.state, new.priority, coalesce(new.at, new.now + new.delay_us), 0, 0, 0, new.max_attempts,
        case when new.unique_for_us is null then new.unique_key end, new.limit_key, new.max_running,
        case when new.state = 'blocked' then 'limit:' || new.limit_key end, new.arguments, new.now, new.now
    where not exists (select 1 from stagepost_job where id = new.id)
      and not exists (select 1 from stagepost_job_history where id = new.id)
      and not exists (select 1 from stagepost_job where unique_key = new.unique_key and new.unique_for_us is null)
      and not exists (
          select 1 from stagepost_unique_key
          where unique_key = new.unique_key and held_until > new.now and job_id <> new.id
            and new.unique_for_us is not null
      );
    insert into stagepost_move (scope, became, jobs)
    select 'queue:' || queue_name, case when state = 'queued' then 'active' else state end, 1
    from stagepost_job
    where id = new.id and changes() = 1;
    delete from stagepost_unique_key
    where unique_key = new.unique_key and new.unique_for_us is not null
      and (held_until <= new.now or job_id = new.id);
    insert into stagepost_unique_key (unique_key, job_id, held_until)
    select new.unique_key, new.id, new.now + new.unique_for_us
    where new.unique_for_us is not null
      and not exists (select 1 from stagepost_unique_key where unique_key = new.unique_key);
end;
