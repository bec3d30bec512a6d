-- Live jobs.
-- `sent_at`: when the broker confirmed the message of a queued job; null before that, and again once it is claimed.
-- `blocked_on`: what a blocked job waits for. An unblocked job keeps it until its attempt ends: it counts against its
-- limit before it is claimed. Only jobs of remote tasks have `limit_slots`, and only running jobs have `lease_until`.
-- Three columns only make claims cheaper. `running_key` and `blocked_state`: claiming a job without a limit changes no
-- entry in the indexes of limits. `room`: it becomes null when a claim sets `locked_by`, which makes space for what the
-- claim writes. Otherwise rows would grow, and InnoDB would split their pages.
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

-- The unique keys of live jobs. A unique index on the jobs would lock more: InnoDB also locks the neighbours of a
-- duplicate or recently deleted entry in a secondary index, but only the row itself in a primary key.
create table stagepost_live_key (
    unique_key varchar(191) primary key,
    job_id char(36) character set ascii collate ascii_bin not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Ended jobs. `announced_at`: when the broker confirmed the notice that the job failed permanently.
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

-- `reason` is the error of a failed job or dead letter without ids and numbers, for grouping.
create index stagepost_job_history_reason on stagepost_job_history (reason, task_name, finished_at, id);

-- Moves: how many jobs of a scope changed from one class to another. A null class means that the jobs were created or
-- deleted.
create table stagepost_move (
    id bigint auto_increment primary key,
    scope varchar(200) not null,
    was varchar(24),
    became varchar(24),
    jobs integer not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_move_scope on stagepost_move (scope);

-- The sums of folded moves. The number of jobs is this sum plus the moves that are not folded yet.
create table stagepost_count (
    scope varchar(200) not null,
    class varchar(24) not null,
    jobs bigint not null,
    primary key (scope, class)
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Batches: jobs that are counted together. The ids of a batch's items are between `first_id` and `last_id`.
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

-- Gates, open while no batch under them is unfinished. `openings` only grows. A transaction that starts or finishes a
-- batch locks the row and changes `unfinished`. So a transaction with an old snapshot that locks the row reads the
-- current number.
create table stagepost_gate (
    name varchar(191) primary key,
    on_open longtext,
    unfinished bigint not null,
    openings bigint not null,
    opened_at bigint,
    updated_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Runs of pipelines. `plan` holds everything that a run needs to continue without the code that declared it, and `steps`
-- the progress of each step. Both change only while the row is locked.
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

-- Stripes of limit keys: a transaction that counts the running jobs of a key locks the row of the key's stripe.
create table stagepost_limit_stripe (
    stripe integer primary key
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Operators' settings for queues; the row named * applies to all queues together.
-- `full_at` is when the token bucket of starts per second is full again.
create table stagepost_queue (
    name varchar(191) primary key,
    paused_at bigint,
    max_running integer,
    rate double,
    burst integer,
    full_at bigint not null default 0,
    updated_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Token buckets. `full_at` is when the bucket is full again.
create table stagepost_rate (
    name varchar(191) primary key,
    full_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Schedules. Among those that are due, the one that fired longest ago (`fired_at`) fires next. Workers renew
-- `declared_at`. It is null after an operator resumed a schedule that no code declares.
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

-- Leaderships, such as that of the upkeep. One process at a time holds each. `term` only grows.
create table stagepost_leader (
    name varchar(64) primary key,
    owner varchar(64) not null,
    term bigint not null,
    expires_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Workers' reports about themselves. They are for people: leases and rescue do not depend on them.
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

-- The audit log of operators' actions. Rows never change.
create table stagepost_audit (
    id char(36) character set ascii collate ascii_bin primary key,
    actor varchar(191) not null,
    action varchar(64) not null,
    subject varchar(191) not null,
    detail longtext,
    acted_at bigint not null
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

create index stagepost_audit_subject on stagepost_audit (subject, acted_at);

-- The outbox: messages for the broker other than requests, published in order and then deleted. `encoding` says whether
-- `body` is text, or base64 because it is not valid text.
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

-- Observations of a queue at the broker: since when the broker carries it, since when it is empty, when a message was
-- last taken from it, and how long the external program that runs its tasks may be silent.
create table stagepost_channel (
    queue_name varchar(191) primary key,
    carried_since bigint not null,
    empty_since bigint,
    active_at bigint,
    looked_at bigint,
    resent_at bigint,
    patience_us bigint
) engine=innodb default character set utf8mb4 collate utf8mb4_bin;

-- Messages from the broker's dead-letter queue that belong to no job. `reason` is `error` without ids and numbers, for
-- grouping.
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
