-- Live jobs.
-- `sent_at`: when the broker confirmed the message of a queued job; null before that, and again once it is claimed.
-- `blocked_on`: what a blocked job waits for. An unblocked job keeps it until its attempt ends: it counts against its
-- limit before it is claimed. Only jobs of remote tasks have `limit_slots`.
create table stagepost_job (
    id text primary key,
    queue_name text not null,
    task_name text not null,
    state text not null
        check (state in ('blocked', 'queued', 'retrying', 'running', 'scheduled', 'waiting')),
    priority integer not null,
    available_at integer not null,
    attempts integer not null,
    failures integer not null,
    crashes integer not null,
    max_attempts integer not null,
    lease_until integer,
    locked_by text,
    started_at integer,
    cancel_requested_at integer,
    sent_at integer,
    unique_key text,
    limit_key text,
    limit_slots integer,
    blocked_on text,
    batch_id text,
    item_key text,
    has_children integer not null default 0,
    payload text not null,
    context text,
    progress text,
    created_at integer not null,
    updated_at integer not null
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
    id text primary key,
    queue_name text not null,
    task_name text not null,
    state text not null
        check (state in ('cancelled', 'completed', 'completed_with_errors', 'dead_letter', 'failed', 'waived')),
    priority integer not null,
    available_at integer not null,
    attempts integer not null,
    failures integer not null,
    crashes integer not null,
    max_attempts integer not null,
    processed_by text,
    unique_key text,
    limit_key text,
    limit_slots integer,
    batch_id text,
    item_key text,
    payload text not null,
    context text,
    result text,
    error text,
    reason text,
    created_at integer not null,
    started_at integer,
    finished_at integer not null,
    announced_at integer
);

create index stagepost_job_history_ended on stagepost_job_history (state, finished_at);

-- `reason` is the error of a failed job or dead letter without ids and numbers, for grouping.
create index stagepost_job_history_reason on stagepost_job_history (reason, task_name, finished_at, id)
where reason is not null;

-- Moves: how many jobs of a scope changed from one class to another. A null class means that the jobs were created or
-- deleted.
create table stagepost_move (
    id integer primary key,
    scope text not null,
    was text,
    became text,
    jobs integer not null
);

create index stagepost_move_scope on stagepost_move (scope);

-- The sums of folded moves. The number of jobs is this sum plus the moves that are not folded yet.
create table stagepost_count (
    scope text not null,
    class text not null,
    jobs integer not null,
    primary key (scope, class)
);

-- Batches: jobs that are counted together. The ids of a batch's items are between `first_id` and `last_id`.
create table stagepost_batch (
    id text primary key,
    batch_key text not null unique,
    kind text not null
        check (kind in ('batch', 'children', 'step')),
    state text not null
        check (state in ('done', 'open', 'sealed')),
    gate text,
    on_failed text not null,
    owner_id text,
    first_id text not null,
    last_id text not null,
    position integer not null,
    cursor_key text,
    on_complete text,
    result text,
    outcome text,
    cancelled_at integer,
    created_at integer not null,
    sealed_at integer,
    done_at integer,
    updated_at integer not null
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
    name text primary key,
    on_open text,
    unfinished integer not null,
    openings integer not null,
    opened_at integer,
    updated_at integer not null
);

-- Runs of pipelines. `plan` holds everything that a run needs to continue without the code that declared it, and `steps`
-- the progress of each step. Both change only while the row is locked.
create table stagepost_run (
    id text primary key,
    run_key text not null,
    pipeline text not null,
    state text not null
        check (state in ('cancelled', 'completed', 'completed_with_errors', 'failed', 'running')),
    plan text not null,
    input text not null,
    steps text not null,
    context text,
    starts integer not null,
    error text,
    cancelled_at integer,
    created_at integer not null,
    updated_at integer not null,
    ended_at integer,
    unique (pipeline, run_key)
);

create index stagepost_run_ended on stagepost_run (ended_at);

create index stagepost_run_state on stagepost_run (state, id);

-- Attempts that did not complete their job.
create table stagepost_failure (
    job_id text not null,
    attempt integer not null,
    kind text not null,
    error text not null,
    traceback text,
    owner text,
    failed_at integer not null,
    primary key (job_id, attempt)
);

-- Unique keys held for a period, whether or not their job still lives.
create table stagepost_unique_key (
    unique_key text primary key,
    job_id text not null,
    held_until integer not null
);

create index stagepost_unique_key_held on stagepost_unique_key (held_until);

-- Stripes of limit keys: a transaction that counts the running jobs of a key locks the row of the key's stripe.
create table stagepost_limit_stripe (
    stripe integer primary key
);

-- Operators' settings for queues; the row named * applies to all queues together.
-- `full_at` is when the token bucket of starts per second is full again.
create table stagepost_queue (
    name text primary key,
    paused_at integer,
    max_running integer,
    rate real,
    burst integer,
    full_at integer not null default 0,
    updated_at integer not null
);

-- Token buckets. `full_at` is when the bucket is full again.
create table stagepost_rate (
    name text primary key,
    full_at integer not null
);

-- Schedules. Among those that are due, the one that fired longest ago (`fired_at`) fires next. Workers renew
-- `declared_at`. It is null after an operator resumed a schedule that no code declares.
create table stagepost_schedule (
    name text primary key,
    task_name text not null,
    rule text not null,
    time_zone text not null,
    catch_up text not null,
    template text not null,
    next_due_at integer not null,
    last_due_at integer,
    fired_at integer,
    declared_at integer,
    orphaned_at integer,
    paused_at integer,
    held_until integer,
    error text,
    updated_at integer not null
);

create index stagepost_schedule_due on stagepost_schedule (next_due_at);

create table stagepost_schedule_run (
    schedule_name text not null,
    due_at integer not null,
    job_id text not null,
    fired_at integer not null,
    primary key (schedule_name, due_at)
);

create index stagepost_schedule_run_fired on stagepost_schedule_run (fired_at);

-- Leaderships, such as that of the upkeep. One process at a time holds each. `term` only grows.
create table stagepost_leader (
    name text primary key,
    owner text not null,
    term integer not null,
    expires_at integer not null
);

-- Workers' reports about themselves. They are for people: leases and rescue do not depend on them.
create table stagepost_worker (
    id text primary key,
    host text not null,
    pid integer not null,
    queues text not null,
    tasks text not null,
    loops text not null,
    slots integer not null,
    running integer not null,
    started_at integer not null,
    seen_at integer not null,
    looked_at integer not null
);

-- The audit log of operators' actions. Rows never change.
create table stagepost_audit (
    id text primary key,
    actor text not null,
    action text not null,
    subject text not null,
    detail text,
    acted_at integer not null
);

create index stagepost_audit_subject on stagepost_audit (subject, acted_at);

-- The outbox: messages for the broker other than requests, published in order and then deleted. `encoding` says whether
-- `body` is text, or base64 because it is not valid text.
create table stagepost_outbox (
    id integer primary key autoincrement,
    routing_key text not null,
    message_id text not null,
    correlation_id text,
    headers text not null,
    encoding text not null,
    body text not null,
    created_at integer not null
);

-- Observations of a queue at the broker: since when the broker carries it, since when it is empty, when a message was
-- last taken from it, and how long the external program that runs its tasks may be silent.
create table stagepost_channel (
    queue_name text primary key,
    carried_since integer not null,
    empty_since integer,
    active_at integer,
    looked_at integer,
    resent_at integer,
    patience_us integer
);

-- Messages from the broker's dead-letter queue that belong to no job. `reason` is `error` without ids and numbers, for
-- grouping.
create table stagepost_dead_message (
    id text primary key,
    queue_name text not null,
    routing_key text not null,
    message_id text not null,
    correlation_id text,
    reason text not null,
    error text not null,
    headers text not null,
    encoding text not null,
    body text not null,
    received_at integer not null
);

create index stagepost_dead_message_received on stagepost_dead_message (received_at, id);
