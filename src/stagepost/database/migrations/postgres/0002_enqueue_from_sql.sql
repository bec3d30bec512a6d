-- Enqueues a job for programs in any language, in their own transaction; docs/how-to/enqueue-from-sql.md describes it.
-- It runs with the rights of its owner, so a program needs only EXECUTE, which nobody has until it is granted. Every
-- name in it is fixed: the tables are qualified with the schema in which they are created, and nothing else but
-- pg_catalog is searched. What insert_job.sql and hold_unique_key.sql decide, it decides in the same way.
do $do$
begin
    execute replace($create$
        create function SCHEMA.stagepost_enqueue_v1(
            task text,
            arguments jsonb default '{}',
            queue text default 'default',
            priority integer default 0,
            delay interval default '0',
            at timestamptz default null,
            max_attempts integer default 5,
            unique_key text default null,
            unique_for interval default null,
            id uuid default null,
            max_running integer default null,
            limit_by text default null
        ) returns text
        language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
        as $body$
        #variable_conflict use_column
        declare
            now_us constant bigint := (date_part('epoch', statement_timestamp()) * 1000000)::bigint;
            longest constant bigint := 36500 * 86400::bigint;
            names constant text := '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,190}$';
            name_rule constant text := ': use 1 to 191 letters, digits and _ . : - (not beginning with . : -).';
            asked_task constant text := $1;
            asked_arguments constant jsonb := coalesce($2, '{}');
            asked_queue constant text := coalesce($3, 'default');
            asked_priority constant integer := coalesce($4, 0);
            asked_attempts constant integer := coalesce($7, 5);
            delay_seconds constant numeric := extract(epoch from coalesce($5, '0'));
            held_seconds constant numeric := extract(epoch from $9);
            asked_at bigint;
            first_state text;
            asked_key constant text := $8;
            asked_id uuid := $10;
            limit_text constant text := case when $11 is not null then $1 || coalesce(':' || $12, '') end;
            live_key constant text := case when $9 is null then $8 end;
            holder uuid;
            wrong text;
            other record;
            made record;
        begin
            wrong := case
                when asked_task is null or asked_task collate "C" !~ names
                    then 'task name ' || quote_nullable(asked_task) || name_rule
                when jsonb_typeof(asked_arguments) <> 'object'
                    then 'arguments are a JSON ' || jsonb_typeof(asked_arguments)
                        || ': give an object with one field per parameter.'
                when asked_queue collate "C" !~ names then 'queue name ' || quote_nullable(asked_queue) || name_rule
                when asked_priority not between -32768 and 32767
                    then 'priority is ' || asked_priority || ': it must be between -32768 and 32767; larger runs first.'
                when asked_attempts < 1 then 'max_attempts is ' || asked_attempts || ': it must be 1 or more.'
                when delay_seconds not between 0 and longest
                    then 'delay is ' || $5 || ': it must be between 0 and 100 years.'
                when $6 is not null and delay_seconds > 0 then 'set either delay or at, not both.'
                when $6 is not null and not isfinite($6) then 'at is ' || $6 || ': give a date and time.'
                when held_seconds not between 0 and longest
                    then 'unique_for is ' || $9 || ': it must be between 0 and 100 years.'
                when held_seconds is not null and asked_key is null
                    then 'unique_for needs a unique_key: set both, or neither.'
                when char_length(asked_key) not between 1 and 191
                    then 'unique_key has ' || char_length(asked_key) || ' characters: it must have 1 to 191.'
                when $11 < 1 then 'max_running is ' || $11 || ': it must be 1 or more.'
                when $12 is not null and $11 is null then 'limit_by needs max_running: set both, or neither.'
                when char_length(limit_text) > 191 then 'limit_by and task have more than 190 characters together.'
                when asked_key <> btrim(asked_key, E' \t\n\r\f\v')
                    then 'unique_key ' || quote_literal(asked_key) || ' begins or ends with white space. Strip it.'
            end;
            if wrong is not null then
                raise exception using errcode = 'invalid_parameter_value', message = 'stagepost: ' || wrong;
            end if;
            asked_at := (date_part('epoch', $6) * 1000000)::bigint;
            first_state := case
                when coalesce(asked_at, 0) > now_us or delay_seconds > 0 then 'scheduled'
                when $11 is not null then 'blocked'
                else 'queued'
            end;
            if asked_id is null then
                asked_id := (
                    lpad(to_hex(floor(date_part('epoch', clock_timestamp()) * 1000)::bigint), 12, '0')
                    || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14, 19)
                )::uuid;
            end if;
            for try in 1..5 loop
                if held_seconds is not null then
                    insert into SCHEMA.stagepost_unique_key as held (unique_key, job_id, held_until)
                    values (asked_key, asked_id, now_us + (held_seconds * 1000000)::bigint)
                    on conflict (unique_key) do update
                    set job_id = excluded.job_id, held_until = excluded.held_until
                    where held.held_until <= now_us or held.job_id = excluded.job_id;
                    select job_id into holder from SCHEMA.stagepost_unique_key where unique_key = asked_key;
                    if holder <> asked_id then
                        return holder::text;
                    end if;
                end if;
                insert into SCHEMA.stagepost_job (
                    id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes,
                    max_attempts, unique_key, limit_key, limit_slots, blocked_on, payload, created_at, updated_at
                )
                select
                    asked_id, asked_queue, asked_task, first_state,
                    asked_priority, coalesce(asked_at, now_us + (delay_seconds * 1000000)::bigint), 0, 0, 0,
                    asked_attempts, live_key, limit_text, $11,
                    case when first_state = 'blocked' then 'limit:' || limit_text end,
                    asked_arguments::text::json, now_us, now_us
                where not exists (select 1 from SCHEMA.stagepost_job_history where id = asked_id)
                on conflict do nothing
                returning id, state into made;
                if made.id is not null then
                    -- A job that ended while the insert waited for it is in neither place that the insert looks at.
                    if $10 is not null
                        and exists (select 1 from SCHEMA.stagepost_job_history where id = asked_id) then
                        raise exception using errcode = 'serialization_failure', message = 'stagepost: job '
                            || asked_id || ' ended while it was enqueued again. Roll back and repeat.';
                    end if;
                    insert into SCHEMA.stagepost_move (scope, became, jobs)
                    values (
                        'queue:' || asked_queue, case when made.state = 'queued' then 'active' else made.state end, 1
                    );
                    -- insert_jobs.sql explains the lock.
                    if made.state = 'queued' and pg_try_advisory_xact_lock(
                        736475017, mod(floor(extract(epoch from clock_timestamp()) * 20), 512)::int
                    ) then
                        perform pg_notify('stagepost', asked_queue);
                    end if;
                    return made.id::text;
                end if;
                select task_name, payload::text into other
                from (
                    select task_name, payload from SCHEMA.stagepost_job where id = asked_id
                    union all
                    select task_name, payload from SCHEMA.stagepost_job_history where id = asked_id
                ) as known
                limit 1;
                if found then
                    -- Not compared if Stagepost itself may have replaced the arguments.
                    if asked_key is null
                        and (other.task_name <> asked_task or other.payload::jsonb <> asked_arguments)
                        and not exists (select 1 from SCHEMA.stagepost_batch where id = asked_id) then
                        raise exception using errcode = 'unique_violation', message = 'stagepost: id ' || asked_id
                            || ' belongs to a job of task ' || quote_literal(other.task_name)
                            || ' with other arguments. Derive ids from all that makes a job what it is.';
                    end if;
                    return asked_id::text;
                end if;
                select id into holder from SCHEMA.stagepost_job where unique_key = live_key;
                if found then
                    return holder::text;
                end if;
            end loop;
            raise exception using errcode = 'serialization_failure', message = 'stagepost: unique_key '
                || quote_nullable(asked_key) || ' changed hands too often. Roll back and repeat.';
        end
        $body$
    $create$, 'SCHEMA', quote_ident(current_schema()));
end
$do$;

revoke all on function stagepost_enqueue_v1 from public;
