-- Enqueues a job for programs in any language, in their own transaction; docs/how-to/enqueue-from-sql.md describes it.
-- A procedure, because servers with a binary log let only administrators create functions and triggers. It runs with
-- the rights of its owner, so a program needs only EXECUTE. What insert_job.sql and hold_unique_key.sql decide, it
-- decides in the same way. Names of variables differ from those of columns, because they would hide them.
create procedure stagepost_enqueue_v1(
    in asked_task longtext character set utf8mb4 collate utf8mb4_bin,
    in asked_arguments longtext character set utf8mb4 collate utf8mb4_bin,
    in asked_options longtext character set utf8mb4 collate utf8mb4_bin,
    out enqueued_id char(36) character set ascii collate ascii_bin
)
modifies sql data sql security definer
whole: begin
    declare longest bigint default 36500 * 86400;
    declare now_us bigint default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    declare payload_text longtext character set utf8mb4 collate utf8mb4_bin default coalesce(asked_arguments, '{}');
    declare options_text longtext character set utf8mb4 collate utf8mb4_bin default coalesce(asked_options, '{}');
    declare queue_text longtext character set utf8mb4 collate utf8mb4_bin default 'default';
    declare key_text longtext character set utf8mb4 collate utf8mb4_bin;
    declare limit_text longtext character set utf8mb4 collate utf8mb4_bin;
    declare slots bigint;
    declare id_text longtext character set utf8mb4 collate utf8mb4_bin;
    declare new_id, holder char(36) character set ascii collate ascii_bin;
    declare random_text char(64) character set ascii collate ascii_bin;
    declare state_text varchar(24) character set utf8mb4 collate utf8mb4_bin default 'queued';
    declare other_task varchar(191) character set utf8mb4 collate utf8mb4_bin;
    declare other_payload longtext character set utf8mb4 collate utf8mb4_bin;
    declare priority_number, attempts_number bigint;
    declare delay_seconds, at_seconds, held_seconds double;
    declare due_us bigint;
    declare wrong varchar(128) character set utf8mb4 collate utf8mb4_bin;
    declare is_alone, is_there, is_inside boolean default false;
    declare continue handler for not found begin end;
    declare exit handler for sqlexception
    begin
        if is_alone then
            rollback;
        elseif is_inside then
            begin
                -- After a deadlock the whole transaction is rolled back, and its savepoints are gone.
                declare continue handler for 1305 begin end;
                rollback to savepoint stagepost_enqueue_v1;
            end;
        end if;
        resignal;
    end;

    set wrong = case
        when not json_valid(payload_text)
            then 'arguments are not JSON: give an object with one field per parameter.'
        when json_type(payload_text) <> 'OBJECT'
            then 'arguments are not a JSON object: give one field per parameter.'
        when not json_valid(options_text) then 'options are not JSON: give an object such as {"queue": "mail"}.'
        when json_type(options_text) <> 'OBJECT' then 'options are not a JSON object such as {"queue": "mail"}.'
        when json_length(options_text) > 0 and not json_contains(
            '["queue", "priority", "delay", "at", "max_attempts", "unique_key", "unique_for", "id", "max_running", "limit_by"]',
            json_keys(options_text)
        )
            then 'unknown option. See "Enqueue from SQL and other languages" in the documentation.'
        when json_type(json_extract(options_text, '$.queue')) not in ('STRING', 'NULL') then 'queue must be a text.'
        when json_type(json_extract(options_text, '$.unique_key')) not in ('STRING', 'NULL')
            then 'unique_key must be a text of 1 to 191 characters.'
        when json_type(json_extract(options_text, '$.id')) not in ('STRING', 'NULL')
            then 'id must be a UUID, such as 019a8a56-0f3e-7c44-a7d1-2b9c1d0e5a03.'
        when json_type(json_extract(options_text, '$.max_running')) not in ('INTEGER', 'NULL')
            then 'max_running must be a whole number, 1 or more.'
        when json_type(json_extract(options_text, '$.limit_by')) not in ('STRING', 'NULL')
            then 'limit_by must be a text.'
        when json_type(json_extract(options_text, '$.priority')) not in ('INTEGER', 'NULL')
            then 'priority must be a whole number between -32768 and 32767; larger runs first.'
        when json_type(json_extract(options_text, '$.max_attempts')) not in ('INTEGER', 'NULL')
            then 'max_attempts must be a whole number, 1 or more.'
        when json_type(json_extract(options_text, '$.delay')) not in ('INTEGER', 'DOUBLE', 'DECIMAL', 'NULL')
            then 'delay must be a number of seconds between 0 and 100 years.'
        when json_type(json_extract(options_text, '$.at')) not in ('INTEGER', 'DOUBLE', 'DECIMAL', 'NULL')
            then 'at must be a number of seconds since 1970, such as unix_timestamp(…).'
        when json_type(json_extract(options_text, '$.unique_for')) not in ('INTEGER', 'DOUBLE', 'DECIMAL', 'NULL')
            then 'unique_for must be a number of seconds between 0 and 100 years.'
    end;
    if wrong is null then
        -- nullif: what MariaDB returns for a null in JSON depends on its version.
        if json_type(json_extract(options_text, '$.queue')) = 'STRING' then
            set queue_text = json_unquote(json_extract(options_text, '$.queue'));
        end if;
        if json_type(json_extract(options_text, '$.unique_key')) = 'STRING' then
            set key_text = json_unquote(json_extract(options_text, '$.unique_key'));
        end if;
        if json_type(json_extract(options_text, '$.id')) = 'STRING' then
            set id_text = lower(json_unquote(json_extract(options_text, '$.id')));
        end if;
        set slots = nullif(json_unquote(json_extract(options_text, '$.max_running')), 'null');
        if json_type(json_extract(options_text, '$.limit_by')) = 'STRING' then
            set limit_text = concat(asked_task, ':', json_unquote(json_extract(options_text, '$.limit_by')));
        end if;
        set priority_number = coalesce(nullif(json_unquote(json_extract(options_text, '$.priority')), 'null'), 0);
        set attempts_number = coalesce(nullif(json_unquote(json_extract(options_text, '$.max_attempts')), 'null'), 5);
        set delay_seconds = coalesce(nullif(json_unquote(json_extract(options_text, '$.delay')), 'null'), 0);
        set at_seconds = nullif(json_unquote(json_extract(options_text, '$.at')), 'null');
        set held_seconds = nullif(json_unquote(json_extract(options_text, '$.unique_for')), 'null');
        set wrong = case
            when asked_task is null or char_length(asked_task) not between 1 and 191
                or asked_task regexp '[^A-Za-z0-9_.:-]' or asked_task not regexp '^[A-Za-z0-9_]'
                then 'task: use 1 to 191 letters, digits and _ . : - (not beginning with . : -).'
            when char_length(queue_text) not between 1 and 191
                or queue_text regexp '[^A-Za-z0-9_.:-]' or queue_text not regexp '^[A-Za-z0-9_]'
                then 'queue: use 1 to 191 letters, digits and _ . : - (not beginning with . : -).'
            when priority_number not between -32768 and 32767
                then 'priority must be a whole number between -32768 and 32767; larger runs first.'
            when attempts_number not between 1 and 2147483647 then 'max_attempts must be a whole number, 1 or more.'
            when delay_seconds not between 0 and longest
                then 'delay must be a number of seconds between 0 and 100 years.'
            when abs(at_seconds) > 253402300799
                then 'at must be a number of seconds since 1970, such as unix_timestamp(…).'
            when at_seconds is not null and delay_seconds > 0 then 'set either delay or at, not both.'
            when held_seconds not between 0 and longest
                then 'unique_for must be a number of seconds between 0 and 100 years.'
            when held_seconds is not null and key_text is null
                then 'unique_for needs a unique_key: set both, or neither.'
            when char_length(key_text) not between 1 and 191 then 'unique_key must be a text of 1 to 191 characters.'
            when slots not between 1 and 2147483647 then 'max_running must be a whole number, 1 or more.'
            when limit_text is not null and slots is null then 'limit_by needs max_running: set both, or neither.'
            when char_length(limit_text) > 191
                then 'limit_by must be a text; it and task have at most 190 characters together.'
            when key_text regexp '^[[:space:]]|[[:space:]]$'
                then 'unique_key begins or ends with white space. Strip it.'
            when char_length(id_text) <> 36
                or id_text not regexp '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'
                then 'id must be a UUID, such as 019a8a56-0f3e-7c44-a7d1-2b9c1d0e5a03.'
        end;
    end if;
    if wrong is not null then
        set wrong = concat('stagepost: ', wrong);
        signal sqlstate '45000' set message_text = wrong;
    end if;

    set new_id = id_text;
    if new_id is null then
        set random_text = sha2(concat(uuid(), rand(), connection_id()), 256);
        set new_id = lower(concat(
            insert(lpad(hex(now_us div 1000), 12, '0'), 9, 0, '-'), '-7', substr(random_text, 1, 3), '-',
            substr('89ab', 1 + conv(substr(random_text, 4, 1), 16, 10) % 4, 1), substr(random_text, 5, 3), '-',
            substr(random_text, 8, 12)
        ));
    end if;
    set due_us = coalesce(round(at_seconds * 1000000), now_us + round(delay_seconds * 1000000));
    if delay_seconds > 0 or due_us > now_us then
        set state_text = 'scheduled';
    elseif slots is not null then
        set state_text = 'blocked';
    end if;
    if slots is not null then
        set limit_text = coalesce(limit_text, asked_task);
    end if;

    -- Outside a transaction, in autocommit mode, a savepoint is forgotten at once. Then the procedure needs a
    -- transaction of its own; otherwise it must not begin one, because that would commit the caller's.
    begin
        declare exit handler for 1305 set is_alone = true;
        savepoint stagepost_enqueue_v1;
        release savepoint stagepost_enqueue_v1;
    end;
    if is_alone then
        start transaction;
    else
        savepoint stagepost_enqueue_v1;
        set is_inside = true;
    end if;

    writing: begin
        if id_text is not null then
            set is_there = true;
            select task_name, payload into other_task, other_payload from stagepost_job where id = new_id;
            if other_task is null then
                select task_name, payload into other_task, other_payload from stagepost_job_history where id = new_id;
            end if;
            if other_task is not null then
                leave writing;
            end if;
            set is_there = false;
        end if;
        if held_seconds is not null then
            select job_id into holder
            from stagepost_unique_key
            where unique_key = key_text and held_until > now_us and job_id <> new_id;
            if holder is not null then
                leave writing;
            end if;
            insert into stagepost_unique_key (unique_key, job_id, held_until)
            values (key_text, new_id, now_us + round(held_seconds * 1000000))
            on duplicate key update
                job_id = case when held_until <= now_us then new_id else job_id end,
                held_until = case
                    when job_id = new_id then now_us + round(held_seconds * 1000000) else held_until
                end;
            select job_id into holder from stagepost_unique_key where unique_key = key_text lock in share mode;
        elseif key_text is not null then
            -- The first look takes no lock, which would keep the holder from ending.
            select job_id into holder from stagepost_live_key where unique_key = key_text;
            if holder is not null then
                leave writing;
            end if;
            insert into stagepost_live_key (unique_key, job_id)
            values (key_text, new_id)
            on duplicate key update unique_key = stagepost_live_key.unique_key;
            select job_id into holder from stagepost_live_key where unique_key = key_text lock in share mode;
        end if;
        if holder <> new_id then
            leave writing;
        end if;
        begin
            declare continue handler for 1062 set is_there = true;
            insert into stagepost_job (
                id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts,
                unique_key, limit_key, limit_slots, blocked_on, payload, created_at, updated_at
            )
            values (
                new_id, queue_text, asked_task, state_text, priority_number, due_us, 0, 0, 0, attempts_number,
                case when held_seconds is null then key_text end, limit_text, slots,
                case when state_text = 'blocked' then concat('limit:', limit_text) end, payload_text, now_us, now_us
            );
        end;
        if is_there then
            -- Another transaction has created the same job meanwhile.
            if is_alone then
                rollback;
                start transaction;
            else
                rollback to savepoint stagepost_enqueue_v1;
            end if;
            select task_name, payload into other_task, other_payload
            from stagepost_job
            where id = new_id
            lock in share mode;
            leave writing;
        end if;
        if id_text is not null and exists (select 1 from stagepost_job_history where id = new_id) then
            signal sqlstate '40001'
            set message_text = 'stagepost: the job ended while it was enqueued again. Roll back and repeat.';
        end if;
        insert into stagepost_move (scope, became, jobs)
        values (concat('queue:', queue_text), case state_text when 'queued' then 'active' else state_text end, 1);
    end writing;

    -- Not compared if Stagepost itself may have replaced the arguments.
    if is_there and key_text is null
        and (
            other_task <> asked_task
            or json_merge_preserve('{}', other_payload) <> json_merge_preserve('{}', payload_text)
        )
        and not exists (select 1 from stagepost_batch where id = new_id)
    then
        signal sqlstate '45000'
        set message_text = 'stagepost: this id belongs to a job of another task or with other arguments.';
    end if;
    set enqueued_id = case when is_there then new_id else coalesce(holder, new_id) end;
    if is_alone then
        commit;
    else
        release savepoint stagepost_enqueue_v1;
    end if;
end;
