create table if not exists tasks (
    id varchar(36) not null primary key,
    status varchar(16) not null,
    error text,
    source_language varchar(35) not null,
    target_language varchar(35) not null,
    title varchar(255) not null,
    source_sha256 varchar(64) not null,
    source_video_key varchar(255) not null,
    output_video_key varchar(255) not null,
    options_json text not null,
    revision integer not null,
    requeues integer not null,
    run_id varchar(36),
    duration_ms bigint,
    speech_db double precision,
    created_at bigint not null,
    updated_at bigint not null,
    finished_at bigint,
    constraint tasks_run unique (run_id),
    constraint tasks_newest unique (created_at, id),
    constraint tasks_newest_by_status unique (status, created_at, id),
    constraint tasks_status check (status in ('queued', 'running', 'done', 'failed', 'cancelled'))
);

create table if not exists segments (
    task_id varchar(36) not null,
    idx integer not null,
    segment_id varchar(32) not null,
    start_ms bigint not null,
    end_ms bigint not null,
    src_text text not null,
    mt_text text,
    tts_audio_key varchar(255),
    tts_params_json text,
    tts_error text,
    primary key (task_id, idx)
);

create table if not exists task_steps (
    task_id varchar(36) not null,
    step varchar(32) not null,
    part varchar(32) not null,
    attempt integer not null,
    status varchar(16) not null,
    trace_id varchar(191),
    owner varchar(64) not null,
    progress double precision not null,
    started_at bigint not null,
    finished_at bigint,
    error text,
    primary key (task_id, step, part, attempt),
    constraint task_steps_status check (status in ('running', 'succeeded', 'failed', 'stale'))
);
