-- The states of live and of ended jobs. PostgreSQL caches the check of a domain, but reads the check of a column again
-- for every statement that writes it.
create domain stagepost_live_state as varchar(24)
check (value in ('blocked', 'queued', 'retrying', 'running', 'scheduled', 'waiting'));

create domain stagepost_ended_state as varchar(24)
check (value in ('cancelled', 'completed', 'completed_with_errors', 'dead_letter', 'failed', 'waived'));

-- Live jobs. Rows are small and updated often, so pages keep free space for new row versions.
-- `sent_at`: when the broker confirmed the message of a queued job; null before that, and again once it is claimed.
-- `blocked_on`: what a blocked job waits for. An unblocked job keeps it until its attempt ends: it counts against its
-- limit before it is claimed. Only jobs of remote tasks have `limit_slots`.
create table stagepost_job (
    id uuid primary key,
    queue_name varchar(191) not null,
    task_name varchar(191) not null,
    state stagepost_live_state not null,
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
    blocked_on varchar(200) collate "C",
    batch_id uuid,
    item_key varchar(191),
    has_children smallint not null default 0,
    payload json not null,
    context json,
    progress json,
    created_at bigint not null,
    updated_at bigint not null
) with (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05
);

create index stagepost_job_claim on stagepost_job (queue_name, priority desc, available_at, id)
where state = 'queued' and sent_at is null;

create index stagepost_job_sent on stagepost_job (queue_name, sent_at)
where sent_at is not null;

create index stagepost_job_due on stagepost_job (available_at)
where state in ('retrying', 'scheduled');

create index stagepost_job_lease on stagepost_job (lease_until)
where state = 'running';

create index stagepost_job_limit on stagepost_job (limit_key)
where state = 'running' and limit_key is not null;

create index stagepost_job_blocked on stagepost_job (blocked_on, state, priority desc, available_at, id)
where blocked_on is not null;

create unique index stagepost_job_unique_key on stagepost_job (unique_key)
where unique_key is not null;

-- Ended jobs. `announced_at`: when the broker confirmed the notice that the job failed permanently.
create table stagepost_job_history (
    id uuid primary key,
    queue_name varchar(191) not null,
    task_name varchar(191) not null,
    state stagepost_ended_state not null,
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
    batch_id uuid,
    item_key varchar(191),
    payload json not null,
    context json,
    result json,
    error text,
    reason varchar(191),
    created_at bigint not null,
    started_at bigint,
    finished_at bigint not null,
    announced_at bigint
) with (
    -- Vacuum soon after inserts, so that counts can use index-only scans.
    autovacuum_vacuum_insert_scale_factor = 0.02,
    autovacuum_vacuum_insert_threshold = 10000
);

create index stagepost_job_history_ended on stagepost_job_history (state, finished_at);

-- `reason` is the error of a failed job or dead letter without ids and numbers, for grouping.
create index stagepost_job_history_reason on stagepost_job_history (reason, task_name, finished_at, id)
where reason is not null;

-- Moves: how many jobs of a scope changed from one class to another. A null class means that the jobs were created or
-- deleted.
create table stagepost_move (
    id bigint generated always as identity primary key,
    scope varchar(200) collate "C" not null,
    was varchar(24),
    became varchar(24),
    jobs integer not null
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

create index stagepost_move_scope on stagepost_move (scope);

-- The sums of folded moves. The number of jobs is this sum plus the moves that are not folded yet.
create table stagepost_count (
    scope varchar(200) collate "C" not null,
    class varchar(24) not null,
    jobs bigint not null,
    primary key (scope, class)
) with (fillfactor = 70);

-- Batches: jobs that are counted together. The ids of a batch's items are between `first_id` and `last_id`.
create table stagepost_batch (
    id uuid primary key,
    batch_key varchar(191) not null unique,
    kind varchar(16) not null
        check (kind in ('batch', 'children', 'step')),
    state varchar(24) not null
        check (state in ('done', 'open', 'sealed')),
    gate varchar(191),
    on_failed varchar(16) not null,
    owner_id uuid,
    first_id uuid not null,
    last_id uuid not null,
    position bigint not null,
    cursor_key varchar(191),
    on_complete text,
    result text,
    outcome varchar(24),
    cancelled_at bigint,
    created_at bigint not null,
    sealed_at bigint,
    done_at bigint,
    updated_at bigint not null
);

create index stagepost_batch_state on stagepost_batch (state, id)
where state <> 'done';

create index stagepost_batch_done on stagepost_batch (done_at)
where done_at is not null;

create index stagepost_batch_gate on stagepost_batch (gate, state)
where gate is not null;

-- Gates, open while no batch under them is unfinished. `openings` only grows. A transaction that starts or finishes a
-- batch locks the row and changes `unfinished`. So a transaction with an old snapshot that locks the row reads the
-- current number.
create table stagepost_gate (
    name varchar(191) primary key,
    on_open text,
    unfinished bigint not null,
    openings bigint not null,
    opened_at bigint,
    updated_at bigint not null
);

-- Runs of pipelines. `plan` holds everything that a run needs to continue without the code that declared it, and `steps`
-- the progress of each step. Both change only while the row is locked.
create table stagepost_run (
    id uuid primary key,
    run_key varchar(191) not null,
    pipeline varchar(191) not null,
    state varchar(24) not null
        check (state in ('cancelled', 'completed', 'completed_with_errors', 'failed', 'running')),
    plan text not null,
    input text not null,
    steps text not null,
    context text,
    starts integer not null,
    error text,
    cancelled_at bigint,
    created_at bigint not null,
    updated_at bigint not null,
    ended_at bigint,
    unique (pipeline, run_key)
);

create index stagepost_run_ended on stagepost_run (ended_at);

create index stagepost_run_state on stagepost_run (state, id);

-- Attempts that did not complete their job.
create table stagepost_failure (
    job_id uuid not null,
    attempt integer not null,
    kind varchar(16) not null,
    error text not null,
    traceback text,
    owner varchar(64),
    failed_at bigint not null,
    primary key (job_id, attempt)
);

-- Unique keys held for a period, whether or not their job still lives.
create table stagepost_unique_key (
    unique_key varchar(191) primary key,
    job_id uuid not null,
    held_until bigint not null
);

create index stagepost_unique_key_held on stagepost_unique_key (held_until);

-- Stripes of limit keys: a transaction that counts the running jobs of a key locks the row of the key's stripe.
create table stagepost_limit_stripe (
    stripe integer primary key
);

-- Operators' settings for queues; the row named * applies to all queues together.
-- `full_at` is when the token bucket of starts per second is full again.
create table stagepost_queue (
    name varchar(191) primary key,
    paused_at bigint,
    max_running integer,
    rate double precision,
    burst integer,
    full_at bigint not null default 0,
    updated_at bigint not null
);

-- Token buckets. `full_at` is when the bucket is full again.
create table stagepost_rate (
    name varchar(191) primary key,
    full_at bigint not null
);

-- Schedules. Among those that are due, the one that fired longest ago (`fired_at`) fires next. Workers renew
-- `declared_at`. It is null after an operator resumed a schedule that no code declares.
create table stagepost_schedule (
    name varchar(191) primary key,
    task_name varchar(191) not null,
    rule varchar(191) not null,
    time_zone varchar(64) not null,
    catch_up varchar(16) not null,
    template text not null,
    next_due_at bigint not null,
    last_due_at bigint,
    fired_at bigint,
    declared_at bigint,
    orphaned_at bigint,
    paused_at bigint,
    held_until bigint,
    error text,
    updated_at bigint not null
);

create index stagepost_schedule_due on stagepost_schedule (next_due_at);

create table stagepost_schedule_run (
    schedule_name varchar(191) not null,
    due_at bigint not null,
    job_id uuid not null,
    fired_at bigint not null,
    primary key (schedule_name, due_at)
);

create index stagepost_schedule_run_fired on stagepost_schedule_run (fired_at);

-- Leaderships, such as that of the upkeep. One process at a time holds each. `term` only grows.
create table stagepost_leader (
    name varchar(64) primary key,
    owner varchar(64) not null,
    term bigint not null,
    expires_at bigint not null
);

-- Workers' reports about themselves. They are for people: leases and rescue do not depend on them.
create table stagepost_worker (
    id varchar(64) primary key,
    host varchar(191) not null,
    pid integer not null,
    queues text not null,
    tasks text not null,
    loops text not null,
    slots integer not null,
    running integer not null,
    started_at bigint not null,
    seen_at bigint not null,
    looked_at bigint not null
);

-- The audit log of operators' actions. Rows never change.
create table stagepost_audit (
    id uuid primary key,
    actor varchar(191) not null,
    action varchar(64) not null,
    subject varchar(191) not null,
    detail text,
    acted_at bigint not null
);

create index stagepost_audit_subject on stagepost_audit (subject, acted_at);

-- The outbox: messages for the broker other than requests, published in order and then deleted. `encoding` says whether
-- `body` is text, or base64 because it is not valid text.
create table stagepost_outbox (
    id bigint generated always as identity primary key,
    routing_key varchar(255) not null,
    message_id varchar(255) not null,
    correlation_id varchar(255),
    headers text not null,
    encoding varchar(8) not null,
    body text not null,
    created_at bigint not null
);

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
);

-- Messages from the broker's dead-letter queue that belong to no job. `reason` is `error` without ids and numbers, for
-- grouping.
create table stagepost_dead_message (
    id uuid primary key,
    queue_name varchar(255) not null,
    routing_key varchar(255) not null,
    message_id varchar(255) not null,
    correlation_id varchar(255),
    reason varchar(191) not null,
    error text not null,
    headers text not null,
    encoding varchar(8) not null,
    body text not null,
    received_at bigint not null
);

create index stagepost_dead_message_received on stagepost_dead_message (received_at, id);
