-- Live jobs. `sent_at` of a queued job: when the broker took a message with its id; null until then, and again once it
-- is claimed. Only running ones have `lease_until`. `blocked_on`: what a blocked job waits for. It stays while a job that
-- was let through waits to be claimed and runs, so that a place which is promised counts as taken. Only jobs of remote
-- tasks have `limit_slots`. Three columns are there for the sake of claims alone: `running_key` and `blocked_state`, so
-- that a claim changes no entry in the indexes of limits for a job without one; and `room`, which it gives up for what it
-- writes, so that the row does not grow: rows lie close together, and every page of them would be split.
create table stagepost_job (
    id char(36) character set ascii collate ascii_bin primary key,
    queue_name varchar(191) not null,
    task_name varchar(191) not null,
    state varchar(24) not null
        check (state in ('blocked', 'queued', 'retrying', 'running', 'scheduled', 'waiting')),
    priority smallint not null,
    available_at bigint not null,
    attempts integer not null,
    failures integer not null,
    crashes integer not null,
    max_attempts integer not null,
    lease_until bigint,
    locked_by varchar(64),
    started_at bigint,
    cancel_requested_at bigint,
    sent_at bigint,
    unique_key varchar(191),
    limit_key varchar(191),
    limit_slots integer,
    running_key varchar(191) generated always as (case when state = 'running' then limit_key end) stored,
    blocked_on varchar(200),
    blocked_state varchar(24) generated always as (case when blocked_on is not null then state end) stored,
    batch_id char(36) character set ascii collate ascii_bin,
    item_key varchar(191),
    has_children smallint not null default 0,
    room varchar(56) character set ascii collate ascii_bin
        generated always as (case when locked_by is null then repeat(' ', 56) end) stored,
    payload longtext not null,
    context longtext,
    progress longtext,
    created_at bigint not null,
    updated_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_job_claim on stagepost_job (state, queue_name, sent_at, priority desc, available_at, id);

create index stagepost_job_time on stagepost_job (state, lease_until, available_at);

create index stagepost_job_limit on stagepost_job (running_key);

create index stagepost_job_blocked on stagepost_job (blocked_on, blocked_state, priority desc, available_at, id);

-- The unique keys of live jobs. Not a unique index of theirs: who finds an entry taken in a secondary index, or freed a
-- moment ago, has the neighbouring ones locked too until its transaction ends; in a primary key it is the row alone.
create table stagepost_live_key (
    unique_key varchar(191) primary key,
    job_id char(36) character set ascii collate ascii_bin not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Ended jobs. `announced_at`: when the broker took a notice that it failed for good.
create table stagepost_job_history (
    id char(36) character set ascii collate ascii_bin primary key,
    queue_name varchar(191) not null,
    task_name varchar(191) not null,
    state varchar(24) not null
        check (state in ('cancelled', 'completed', 'completed_with_errors', 'dead_letter', 'failed', 'waived')),
    priority smallint not null,
    available_at bigint not null,
    attempts integer not null,
    failures integer not null,
    crashes integer not null,
    max_attempts integer not null,
    processed_by varchar(64),
    unique_key varchar(191),
    limit_key varchar(191),
    limit_slots integer,
    batch_id char(36) character set ascii collate ascii_bin,
    item_key varchar(191),
    payload longtext not null,
    context longtext,
    result longtext,
    error longtext,
    reason varchar(191),
    created_at bigint not null,
    started_at bigint,
    finished_at bigint not null,
    announced_at bigint
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_job_history_ended on stagepost_job_history (state, finished_at);

-- `reason` is the error of a failed job or dead letter without its particulars, so that alike ones group.
create index stagepost_job_history_reason on stagepost_job_history (reason, task_name, finished_at, id);

-- So many jobs of a scope went from one class to another; null stands for jobs that did not or do not exist.
create table stagepost_move (
    id bigint auto_increment primary key,
    scope varchar(200) not null,
    was varchar(24),
    became varchar(24),
    jobs integer not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_move_scope on stagepost_move (scope);

-- The sums of the moves that were folded; with those that were not yet, how many jobs there are.
create table stagepost_count (
    scope varchar(200) not null,
    class varchar(24) not null,
    jobs bigint not null,
    primary key (scope, class)
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Jobs that are counted together. Items have ids from `first_id` to `last_id`.
create table stagepost_batch (
    id char(36) character set ascii collate ascii_bin primary key,
    batch_key varchar(191) not null unique,
    kind varchar(16) not null
        check (kind in ('batch', 'children', 'step')),
    state varchar(24) not null
        check (state in ('done', 'open', 'sealed')),
    gate varchar(191),
    on_failed varchar(16) not null,
    owner_id char(36) character set ascii collate ascii_bin,
    first_id char(36) character set ascii collate ascii_bin not null,
    last_id char(36) character set ascii collate ascii_bin not null,
    position bigint not null,
    cursor_key varchar(191),
    on_complete longtext,
    result longtext,
    outcome varchar(24),
    cancelled_at bigint,
    created_at bigint not null,
    sealed_at bigint,
    done_at bigint,
    updated_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_batch_state on stagepost_batch (state, id);

create index stagepost_batch_done on stagepost_batch (done_at);

create index stagepost_batch_gate on stagepost_batch (gate, state);

-- Open while no batch under it is unfinished; `openings` only grows. Who begins or ends a batch locks the row and
-- changes `unfinished`: so a transaction with an old snapshot that locks it still learns the number of this moment.
create table stagepost_gate (
    name varchar(191) primary key,
    on_open longtext,
    unfinished bigint not null,
    openings bigint not null,
    opened_at bigint,
    updated_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Runs of pipelines. `plan` holds all that is needed to go on without the code that declared the pipeline, `steps` how
-- far each step is; both change under the lock of their row only.
create table stagepost_run (
    id char(36) character set ascii collate ascii_bin primary key,
    run_key varchar(191) not null,
    pipeline varchar(191) not null,
    state varchar(24) not null
        check (state in ('cancelled', 'completed', 'completed_with_errors', 'failed', 'running')),
    plan longtext not null,
    input longtext not null,
    steps longtext not null,
    context longtext,
    starts integer not null,
    error longtext,
    cancelled_at bigint,
    created_at bigint not null,
    updated_at bigint not null,
    ended_at bigint,
    unique (pipeline, run_key)
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_run_ended on stagepost_run (ended_at);

create index stagepost_run_state on stagepost_run (state, id);

-- Attempts that did not complete their job.
create table stagepost_failure (
    job_id char(36) character set ascii collate ascii_bin not null,
    attempt integer not null,
    kind varchar(16) not null,
    error longtext not null,
    traceback longtext,
    owner varchar(64),
    failed_at bigint not null,
    primary key (job_id, attempt)
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Unique keys held for a period, whether or not their job still lives.
create table stagepost_unique_key (
    unique_key varchar(191) primary key,
    job_id char(36) character set ascii collate ascii_bin not null,
    held_until bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_unique_key_held on stagepost_unique_key (held_until);

-- Each row stands for a share of all limit keys, and is locked by those who count what runs under one of them.
create table stagepost_limit_stripe (
    stripe integer primary key
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- What operators set on queues; the row named * holds for all of them together.
-- `full_at` is when the bucket of starts per second will be full again.
create table stagepost_queue (
    name varchar(191) primary key,
    paused_at bigint,
    max_running integer,
    rate double,
    burst integer,
    full_at bigint not null default 0,
    updated_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Token buckets: `full_at` is when the bucket will be full again.
create table stagepost_rate (
    name varchar(191) primary key,
    full_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Of those that are due the one that fired longest ago, by `fired_at`, has the next turn. Workers
-- renew `declared_at`; where it is null, an operator lets a schedule fire that no code declares.
create table stagepost_schedule (
    name varchar(191) primary key,
    task_name varchar(191) not null,
    rule varchar(191) not null,
    time_zone varchar(64) not null,
    catch_up varchar(16) not null,
    template longtext not null,
    next_due_at bigint not null,
    last_due_at bigint,
    fired_at bigint,
    declared_at bigint,
    orphaned_at bigint,
    paused_at bigint,
    held_until bigint,
    error longtext,
    updated_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_schedule_due on stagepost_schedule (next_due_at);

create table stagepost_schedule_run (
    schedule_name varchar(191) not null,
    due_at bigint not null,
    job_id char(36) character set ascii collate ascii_bin not null,
    fired_at bigint not null,
    primary key (schedule_name, due_at)
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_schedule_run_fired on stagepost_schedule_run (fired_at);

-- Rights that one process holds at a time, such as upkeep; `term` only grows.
create table stagepost_leader (
    name varchar(64) primary key,
    owner varchar(64) not null,
    term bigint not null,
    expires_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- What workers say of themselves; for people to look at, no decision rests on it.
create table stagepost_worker (
    id varchar(64) primary key,
    host varchar(191) not null,
    pid integer not null,
    queues longtext not null,
    tasks longtext not null,
    loops longtext not null,
    slots integer not null,
    running integer not null,
    started_at bigint not null,
    seen_at bigint not null,
    looked_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- What operators did, never changed.
create table stagepost_audit (
    id char(36) character set ascii collate ascii_bin primary key,
    actor varchar(191) not null,
    action varchar(64) not null,
    subject varchar(191) not null,
    detail longtext,
    acted_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_audit_subject on stagepost_audit (subject, acted_at);

-- Messages for the broker that are no jobs of ours to run: published in order and then deleted. `encoding` says whether
-- `body` is text or, where that cannot hold it, base64.
create table stagepost_outbox (
    id bigint auto_increment primary key,
    routing_key varchar(255) not null,
    message_id varchar(255) not null,
    correlation_id varchar(255),
    headers longtext not null,
    encoding varchar(8) not null,
    body longtext not null,
    created_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- What is known of a queue at the broker: since when it carries it and is seen empty, when something was last taken from
-- it, and how long a foreign program that runs its tasks may be silent.
create table stagepost_channel (
    queue_name varchar(191) primary key,
    carried_since bigint not null,
    empty_since bigint,
    active_at bigint,
    looked_at bigint,
    resent_at bigint,
    patience_us bigint
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Messages that nobody can work with, taken from the broker's queue of dead letters; `reason` is `error` without its
-- particulars, so that alike ones group.
create table stagepost_dead_message (
    id char(36) character set ascii collate ascii_bin primary key,
    queue_name varchar(255) not null,
    routing_key varchar(255) not null,
    message_id varchar(255) not null,
    correlation_id varchar(255),
    reason varchar(191) not null,
    error longtext not null,
    headers longtext not null,
    encoding varchar(8) not null,
    body longtext not null,
    received_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_dead_message_received on stagepost_dead_message (received_at, id);
