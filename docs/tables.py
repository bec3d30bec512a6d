"""Descriptions of all tables and columns; a check against the migrations ensures that none is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stagepost.database.dialect import SQLITE
from stagepost.database.migrate import CREATE_TABLE, migrations_of

__all__ = ["TABLES", "Table", "check_against_migrations"]


@dataclass(frozen=True)
class Table:
    """The description of a table."""

    purpose: str
    columns: Mapping[str, str]


JOB = {
    "id": "UUIDv7, created by the client.",
    "queue_name": "The job's queue.",
    "task_name": "The job's task.",
    "state": "See [states](states.md).",
    "priority": "Larger first.",
    "available_at": "When the job may start; in history, when it could have started.",
    "attempts": "Number of attempts that were claimed; the number of the last one is its fence.",
    "failures": "Attempts that raised an error, since the job was enqueued or last retried by an operator.",
    "crashes": "Attempts whose worker died, since the job was enqueued or last retried by an operator.",
    "max_attempts": "Number of failures after which the job becomes a dead letter.",
    "unique_key": "The key that no other live job may hold; null for keys held for a period.",
    "limit_key": "Jobs with the same limit key share one limit.",
    "limit_slots": "For a remote task: how many jobs with this limit key may run at once.",
    "batch_id": "The batch that contains the job; for a child, the id of its parent.",
    "item_key": "The key of the item, unique within its batch.",
    "payload": "The arguments, as a JSON object by parameter name.",
    "context": "JSON: trace, correlation, user and parent ids; the schedule and due time of a scheduled job.",
    "created_at": "When the job was enqueued.",
    "started_at": "When the last attempt started; null while a job that crashed twice waits in a worker for its turn.",
}

TABLES: dict[str, Table] = {
    "stagepost_job": Table(
        "Live jobs. This table is busy: read single rows and short pages, and do not count its rows. On MySQL and "
        "MariaDB it has three more columns, `running_key`, `blocked_state` and `room`, which the database fills to "
        "make claims cheap.",
        JOB
        | {
            "lease_until": "When the lease of a running attempt ends.",
            "locked_by": "The owner of the running attempt: the id of a worker.",
            "blocked_on": "What a blocked job waits for: `limit:` and a limit key, `rate:` and the name of a rate, or "
            "`task:` and a task that no worker knows. An unblocked job keeps it until its attempt ends.",
            "progress": "The last progress report of the running attempt, as JSON; null if there is none.",
            "has_children": "1 once the handler has submitted children that the job must wait for.",
            "cancel_requested_at": "When the running attempt was asked to stop.",
            "sent_at": "When the broker confirmed the message for the next attempt; null before that and once claimed.",
            "updated_at": "When the row last changed.",
        },
    ),
    "stagepost_job_history": Table(
        "Ended jobs, kept for `history_days`. Use this table for reports.",
        JOB
        | {
            "processed_by": "The owner of the attempt that ended the job.",
            "result": "The handler's return value, as JSON.",
            "error": "The error with which the job ended, if any.",
            "reason": "The error of a dead letter without ids and numbers, so that similar errors form a group.",
            "finished_at": "When the job ended.",
            "announced_at": "When the broker confirmed the notice that the job failed permanently.",
        },
    ),
    "stagepost_batch": Table(
        "Jobs that are counted together: batches, children of a job, jobs of a pipeline's step.",
        {
            "id": "UUIDv7, created by the client; for the children of a job, the job's id.",
            "batch_key": "The key that the application chose.",
            "kind": "`batch`, `children` or `step`.",
            "state": "`open`, `sealed` or `done`.",
            "gate": "The gate that the batch keeps closed until it is done.",
            "on_failed": "`finish` or `hold`: the effect of failed items.",
            "owner_id": "The batch of the parent, or the run, that waits for this batch.",
            "first_id": "The smallest id that an item of the batch can have.",
            "last_id": "The largest id that an item of the batch can have.",
            "position": "Number of items added from the producer's source.",
            "cursor_key": "The key of the last of these items.",
            "on_complete": "The job to enqueue when the batch is done, as JSON.",
            "result": "The return value of the parent that submitted the items, as JSON.",
            "outcome": "The outcome: `completed`, `completed_with_errors`, `failed` or `cancelled`.",
            "cancelled_at": "When somebody cancelled it.",
            "created_at": "When the batch was created.",
            "sealed_at": "When the batch was sealed.",
            "done_at": "When the batch was done.",
            "updated_at": "When the row last changed.",
        },
    ),
    "stagepost_gate": Table(
        "Gates. A transaction that begins or ends a batch under a gate locks its row.",
        {
            "name": "Its name.",
            "on_open": "The job to enqueue whenever the gate opens, as JSON.",
            "unfinished": "Number of unfinished batches under the gate; 0 means that the gate is open.",
            "openings": "How often the gate has opened.",
            "opened_at": "When the gate last opened.",
            "updated_at": "When the row last changed.",
        },
    ),
    "stagepost_run": Table(
        "Runs of pipelines, running and ended. The results of steps are with their jobs, in history.",
        {
            "id": "UUIDv7, created by the client.",
            "run_key": "The key of the run, unique within its pipeline; the run's id if none was given.",
            "pipeline": "The name of the pipeline.",
            "state": "`running`, `completed`, `completed_with_errors`, `failed` or `cancelled`.",
            "plan": "The steps as JSON, with everything needed to continue without the code that declared them.",
            "input": "The input of the run, as JSON.",
            "steps": "JSON: the state of each step and the batches of its jobs. Changes need the lock of the row.",
            "context": "JSON: trace, correlation and user ids, which all jobs of the run carry.",
            "starts": "How often the run was started: once, plus once for each retry.",
            "error": "Which steps failed, and why.",
            "cancelled_at": "When somebody cancelled it.",
            "created_at": "When the run was started.",
            "updated_at": "When the row last changed.",
            "ended_at": "When the run ended.",
        },
    ),
    "stagepost_move": Table(
        "Numbers of jobs that changed from one class to another. Every change adds a row; folding adds the rows to "
        "`stagepost_count` and deletes them. A class is a state, but `queued` and `running` are one: `active`.",
        {
            "id": "Its number.",
            "scope": "Where the jobs are counted: `queue:` and a queue's name, or `batch:` and a batch's id.",
            "was": "The class before the change; null if the jobs are new.",
            "became": "The class after the change; null if the jobs were deleted.",
            "jobs": "How many.",
        },
    ),
    "stagepost_event": Table(
        "Events. A row holds the events of all jobs that ended in one statement. Read them with `app.events` or "
        "`stagepost events`, which number new rows first.",
        {
            "id": "Its number in the order of writing.",
            "position": "Number of its first event; null until a reader or the leader numbers it after the commit.",
            "happened_at": "When it happened.",
            "subject": "What the events are about: `job`.",
            "number": "How many events it holds.",
            "facts": "JSON: an array with an array for each event: job id, state, task, queue, attempt, batch id, "
            "reason and context.",
        },
    ),
    "stagepost_stream": Table(
        "One row: how far the stream of events goes.",
        {
            "id": "Always 1.",
            "last_position": "The last number that an event was given.",
            "pruned_position": "The last number whose event was deleted.",
        },
    ),
    "stagepost_event_level": Table(
        "Which events are recorded, as workers declared it when they started.",
        {
            "task_name": "Name of the task; empty for the default.",
            "level": "`final` or `off`.",
        },
    ),
    "stagepost_count": Table(
        "Numbers of jobs, without moves that are not folded yet. For exact numbers use `stagepost queues list --json`.",
        {
            "scope": "Where the jobs are counted.",
            "class": "The class of the jobs.",
            "jobs": "How many.",
        },
    ),
    "stagepost_failure": Table(
        "Attempts that did not complete their job, live or ended.",
        {
            "job_id": "The job.",
            "attempt": "The number of the attempt.",
            "kind": "`failed` (may be retried), `refused` (a permanent error) or `crashed` (the worker died).",
            "error": "Type and message of the error, up to 2,000 bytes.",
            "traceback": "The traceback, up to 20,000 bytes.",
            "owner": "The worker that ran the attempt.",
            "failed_at": "When the attempt failed.",
        },
    ),
    "stagepost_unique_key": Table(
        "Unique keys held for a period (`unique_for`), whether or not their job still lives.",
        {"unique_key": "The key.", "job_id": "The job that holds it.", "held_until": "When it becomes free."},
    ),
    "stagepost_limit_stripe": Table(
        "Each row stands for a share of all limit keys and is locked while jobs under one of them are counted.",
        {"stripe": "Its number."},
    ),
    "stagepost_queue": Table(
        "Settings that operators made for queues. The row named `*` applies to all queues together.",
        {
            "name": "The queue.",
            "paused_at": "Since when it is paused.",
            "max_running": "How many jobs of the queue may run at once.",
            "rate": "How many jobs may start per second.",
            "burst": "How many jobs may start at once after a quiet period.",
            "full_at": "When its token bucket will be full again.",
            "updated_at": "When the row last changed.",
        },
    ),
    "stagepost_rate": Table(
        "Token buckets of shared rate limits.",
        {"name": "The limit.", "full_at": "When its bucket will be full again."},
    ),
    "stagepost_schedule": Table(
        "Schedules as workers declared them.",
        {
            "name": "Its name.",
            "task_name": "The task of the jobs that the schedule enqueues.",
            "rule": "The cron rule or interval.",
            "time_zone": "The time zone of a cron rule.",
            "catch_up": "`skip`, `latest` or `all`.",
            "template": "The job that the schedule enqueues, as JSON.",
            "next_due_at": "When the schedule fires next.",
            "last_due_at": "The last due time for which the schedule fired.",
            "fired_at": "When the schedule was last processed.",
            "declared_at": "When a worker last declared the schedule; null if an operator lets it fire without code.",
            "orphaned_at": "Since when the schedule does not fire because no running worker declares it.",
            "paused_at": "Since when it is paused.",
            "held_until": "When a schedule that could not fire is tried again.",
            "error": "Why the schedule could not fire.",
            "updated_at": "When the row last changed.",
        },
    ),
    "stagepost_schedule_run": Table(
        "Due times that have fired. The primary key ensures that a due time fires only once.",
        {
            "schedule_name": "The schedule.",
            "due_at": "The due time.",
            "job_id": "The job that was enqueued, or that already held the unique key.",
            "fired_at": "When the schedule fired.",
        },
    ),
    "stagepost_leader": Table(
        "Elected leaders: one worker for `upkeep`, and one for the work with the `broker`.",
        {
            "name": "`upkeep` or `broker`.",
            "owner": "The worker that leads.",
            "term": "Grows with every change of owner.",
            "expires_at": "When its term ends unless it is renewed.",
        },
    ),
    "stagepost_worker": Table(
        "What workers report about themselves every few seconds.",
        {
            "id": "The worker's id, new at every start; `locked_by` of the jobs it runs.",
            "host": "Its machine.",
            "pid": "Its process.",
            "queues": "The queues that the worker serves, as JSON.",
            "tasks": "The tasks that the worker knows, as JSON.",
            "loops": "The names of the worker's loops, as JSON.",
            "slots": "How many jobs the worker can run at once.",
            "running": "How many jobs it is running.",
            "started_at": "When it started.",
            "seen_at": "When it last reported.",
            "looked_at": "When it last looked for work.",
        },
    ),
    "stagepost_audit": Table(
        "Actions of operators. Rows are added and never changed.",
        {
            "id": "UUIDv7.",
            "actor": "Who acted: user@host of the process, or the `actor` that the caller passed.",
            "action": "What they did: `cancel`, `restart`, `discard`, `pause_queue` and so on.",
            "subject": "The job, queue or schedule concerned.",
            "detail": "More information, for example the state that the job was in.",
            "acted_at": "When they acted.",
        },
    ),
    "stagepost_channel": Table(
        "Observations of the broker's queues, used to distinguish lost messages from waiting ones.",
        {
            "queue_name": "The queue.",
            "carried_since": "Since when the broker carries the queue; jobs that failed before are not announced.",
            "empty_since": "Since when every check found the queue empty.",
            "active_at": "When a message was last taken from the queue.",
            "looked_at": "When the queue was last checked.",
            "resent_at": "When jobs of the queue were last sent again because their messages seemed to be lost.",
            "patience_us": "How long an external program that runs its tasks may be silent; null if workers run them.",
        },
    ),
    "stagepost_outbox": Table(
        "Messages for the broker other than jobs to run. They are published in order and then deleted.",
        {
            "id": "Its number.",
            "routing_key": "The routing key of the message.",
            "message_id": "The message id, the same each time the message is published.",
            "correlation_id": "The correlation id of the message.",
            "headers": "The headers, as JSON.",
            "encoding": "`text`, or `base64` if the body is not text.",
            "body": "The message.",
            "created_at": "When it was written.",
        },
    ),
    "stagepost_dead_message": Table(
        "Unusable messages, taken from the broker's dead-letter queue.",
        {
            "id": "Derived from message id and body, so that the same message has one row.",
            "queue_name": "The broker's queue from which the message came.",
            "routing_key": "Where a retry sends the message; empty if unknown.",
            "message_id": "The message id that the sender chose.",
            "correlation_id": "The correlation id of the message.",
            "reason": "The error without ids and numbers, so that similar errors form a group.",
            "error": "Why the message is unusable.",
            "headers": "The headers, as JSON.",
            "encoding": "`text`, or `base64` if the body is not text.",
            "body": "The body of the message.",
            "received_at": "When the message was received.",
        },
    ),
    "stagepost_migration": Table(
        "Migrations that were applied.",
        {
            "version": "Its number.",
            "name": "Its name.",
            "checksum": "SHA-256 of its text, to detect files that were edited later.",
        },
    ),
}


def check_against_migrations() -> None:
    """Raise if a table or column is described that does not exist, or exists and is not described."""
    described = {name: sorted(table.columns) for name, table in TABLES.items()}
    existing = _existing()
    for name in sorted({*described, *existing}):
        if described.get(name) != existing.get(name):
            raise LookupError(f"docs/tables.py: {name} has {existing.get(name)}, described are {described.get(name)}.")


def _existing() -> dict[str, list[str]]:
    sql = "\n".join(migration.sql for migration in migrations_of(SQLITE))
    tables = re.findall(r"^create table (\w+) \((.*?)^\)", sql, flags=re.DOTALL | re.MULTILINE)
    keywords = {"primary", "unique", "check", "constraint", "foreign"}
    found = {name: sorted(set(re.findall(r"^    (\w+)", body, flags=re.MULTILINE)) - keywords) for name, body in tables}
    found["stagepost_migration"] = sorted(re.findall(r"(\w+) (?:integer|varchar)", CREATE_TABLE))
    return found
