"""What each table and column holds; checked against the migrations, so that none is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stagepost.database.dialect import SQLITE
from stagepost.database.migrate import CREATE_TABLE, migrations_of

__all__ = ["TABLES", "Table", "check_against_migrations"]


@dataclass(frozen=True)
class Table:
    """A table, for people who look at it."""

    purpose: str
    columns: Mapping[str, str]


JOB = {
    "id": "UUIDv7, made by the client.",
    "queue_name": "Its queue.",
    "task_name": "Its task.",
    "state": "See [states](states.md).",
    "priority": "Larger first.",
    "available_at": "When it may run, or might have run.",
    "attempts": "How many attempts have started; the number of the last one is its fence.",
    "failures": "Attempts that raised, since it was enqueued or last retried by hand.",
    "crashes": "Attempts whose worker died, since it was enqueued or last retried by hand.",
    "max_attempts": "How many failures make a dead letter.",
    "unique_key": "The text that no other live job may have; empty for keys held for a period.",
    "limit_key": "Jobs with the same text share one limit.",
    "limit_slots": "For a remote task: how many of them may be on their way at once.",
    "batch_id": "The batch that it is an item of; for a child, the id of its parent.",
    "item_key": "What makes it one of a kind in its batch.",
    "payload": "Arguments: a JSON object by parameter name.",
    "context": "JSON: trace, correlation, user and parent ids; the schedule and due time of a scheduled job.",
    "created_at": "When it was enqueued.",
    "started_at": "When its last attempt began. A job that crashed twice waits for its turn without one.",
}

TABLES: dict[str, Table] = {
    "stagepost_job": Table(
        "Live jobs. Narrow and busy: read single rows and short pages, and do not count them here. On MySQL and "
        "MariaDB it has three columns more, `running_key`, `blocked_state` and `room`, which the database fills for "
        "cheap claims.",
        JOB
        | {
            "lease_until": "When the lease of a running attempt ends.",
            "locked_by": "The owner of the running attempt: the id of a worker.",
            "blocked_on": "What a blocked job waits for: `limit:` and a limit key, `rate:` and the name of a rate, or "
            "`task:` and a task that no worker knows. It stays set after the job was let through.",
            "progress": "JSON of what the attempt under way reported last; empty if it reported nothing.",
            "has_children": "1 once its handler has submitted children for which it must wait.",
            "cancel_requested_at": "When somebody asked the running attempt to stop.",
            "sent_at": "When the broker took the message for its next attempt; empty before, and once it is claimed.",
            "updated_at": "When the row last changed.",
        },
    ),
    "stagepost_job_history": Table(
        "Ended jobs, kept for `history_days`. Reports belong here.",
        JOB
        | {
            "processed_by": "The owner of the attempt that ended it.",
            "result": "JSON of what the handler returned.",
            "error": "What it ended with, if that was no result.",
            "reason": "The error of a dead letter without its ids and numbers, so that alike ones group.",
            "finished_at": "When it ended.",
            "announced_at": "When the broker took the notice that it failed for good.",
        },
    ),
    "stagepost_batch": Table(
        "Jobs that are counted together: batches, children of a job, jobs of a pipeline's step.",
        {
            "id": "UUIDv7, made by the client; of a job's children, the job's id.",
            "batch_key": "The name that code gave it.",
            "kind": "`batch`, `children` or `step`.",
            "state": "`open`, `sealed` or `done`.",
            "gate": "The gate that it keeps closed until it is done.",
            "on_failed": "`finish` or `hold`: what failed items do to it.",
            "owner_id": "Who waits for it: a parent's batch, or a run.",
            "first_id": "The first id that an item of it can have.",
            "last_id": "The last one.",
            "position": "How many items of the producer's source are in.",
            "cursor_key": "The key of the last of these.",
            "on_complete": "JSON of the job to enqueue when it is done.",
            "result": "JSON of what the job that submitted the items returned.",
            "outcome": "How it ended: `completed`, `completed_with_errors`, `failed` or `cancelled`.",
            "cancelled_at": "When somebody cancelled it.",
            "created_at": "When its first items came.",
            "sealed_at": "When it was said that no more would come.",
            "done_at": "When it was done.",
            "updated_at": "When the row last changed.",
        },
    ),
    "stagepost_gate": Table(
        "Gates. Whoever begins or ends a batch under one locks its row.",
        {
            "name": "Its name.",
            "on_open": "JSON of the job to enqueue whenever it opens.",
            "unfinished": "How many batches under it are open or sealed; 0 means that it is open.",
            "openings": "How often it opened.",
            "opened_at": "When it opened last.",
            "updated_at": "When the row last changed.",
        },
    ),
    "stagepost_run": Table(
        "Runs of pipelines, running and ended. What a step gave is with its jobs, in history.",
        {
            "id": "UUIDv7, made by the client.",
            "run_key": "Only one run of its pipeline has it; its id, if none was given.",
            "pipeline": "The name of the pipeline.",
            "state": "`running`, `completed`, `completed_with_errors`, `failed` or `cancelled`.",
            "plan": "JSON of the steps: all that is needed to go on without the code that declared them.",
            "input": "JSON of what it was started with.",
            "steps": "JSON: how far each step is, and the batches of its jobs. Changes under the lock of the row only.",
            "context": "JSON: trace, correlation and user ids, which all its jobs carry.",
            "starts": "How often it was started: once, and once more for each retry.",
            "error": "Which steps failed, and why.",
            "cancelled_at": "When somebody cancelled it.",
            "created_at": "When it was started.",
            "updated_at": "When the row last changed.",
            "ended_at": "When it ended.",
        },
    ),
    "stagepost_move": Table(
        "Jobs that went from one class to another; rows are added with every such change and deleted once they are in "
        "`stagepost_count`. A class is a state, except that `queued` and `running` are one, `active`.",
        {
            "id": "Its number.",
            "scope": "What the jobs are counted in: `queue:` and a queue's name, or `batch:` and a batch's id.",
            "was": "The class they were in; empty if they did not exist.",
            "became": "The class they are in now; empty if they do not exist any more.",
            "jobs": "How many.",
        },
    ),
    "stagepost_count": Table(
        "How many jobs there are, but for moves not added yet. For numbers use `stagepost queues list --json`.",
        {
            "scope": "What the jobs are counted in.",
            "class": "Their class.",
            "jobs": "How many.",
        },
    ),
    "stagepost_failure": Table(
        "Attempts that did not complete their job, live or ended.",
        {
            "job_id": "The job.",
            "attempt": "The number of the attempt.",
            "kind": "`failed` (may pass), `refused` (no retry can mend it) or `crashed` (its worker died).",
            "error": "Type and message, up to 2,000 bytes.",
            "traceback": "Up to 20,000 bytes.",
            "owner": "The worker that ran it.",
            "failed_at": "When.",
        },
    ),
    "stagepost_unique_key": Table(
        "Unique keys held for a period (`unique_for`), whether or not their job still lives.",
        {"unique_key": "The text.", "job_id": "The job that holds it.", "held_until": "Until when."},
    ),
    "stagepost_limit_stripe": Table(
        "Each row stands for a share of all limit keys. It is locked while jobs under one of them are counted.",
        {"stripe": "Its number."},
    ),
    "stagepost_queue": Table(
        "What operators set on queues; the row named `*` holds for all of them together.",
        {
            "name": "The queue.",
            "paused_at": "Since when it is paused.",
            "max_running": "How many of its jobs may run at once.",
            "rate": "How many may start per second.",
            "burst": "How many may start at once after a quiet time.",
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
            "task_name": "The task whose jobs it asks for.",
            "rule": "When: cron or interval.",
            "time_zone": "Whose clocks a cron rule reads.",
            "catch_up": "`skip`, `latest` or `all`.",
            "template": "JSON of the job it asks for.",
            "next_due_at": "When it fires next.",
            "last_due_at": "The last due time it fired for.",
            "fired_at": "When it last had its turn to fire.",
            "declared_at": "When a worker last declared it; empty if an operator lets it fire without code.",
            "orphaned_at": "Since when it does not fire because no running worker declares it.",
            "paused_at": "Since when it is paused.",
            "held_until": "When a schedule that could not fire is tried again.",
            "error": "Why it could not fire.",
            "updated_at": "When the row last changed.",
        },
    ),
    "stagepost_schedule_run": Table(
        "Due times that fired. Its primary key is what makes a due time fire once.",
        {
            "schedule_name": "The schedule.",
            "due_at": "The due time.",
            "job_id": "The job that was enqueued, or already held the unique key.",
            "fired_at": "When it fired.",
        },
    ),
    "stagepost_leader": Table(
        "Rights that one worker holds at a time; upkeep is the only one.",
        {
            "name": "The right.",
            "owner": "The worker that has it.",
            "term": "Grows with every change of owner.",
            "expires_at": "Until when it has it.",
        },
    ),
    "stagepost_worker": Table(
        "What workers say of themselves every few seconds; for people to look at, no decision rests on it.",
        {
            "id": "New at every start; `locked_by` of the jobs it runs.",
            "host": "Its machine.",
            "pid": "Its process.",
            "queues": "JSON: the queues it works on.",
            "tasks": "JSON: the tasks it knows.",
            "slots": "How many jobs it runs at once.",
            "running": "How many it runs.",
            "started_at": "Since when.",
            "seen_at": "When it last said something.",
            "looked_at": "When it last looked for work.",
        },
    ),
    "stagepost_audit": Table(
        "What operators did; rows are added, never changed.",
        {
            "id": "UUIDv7.",
            "actor": "Who: user@host of the process, or what the caller passed as `actor`.",
            "action": "What: `cancel`, `restart`, `discard`, `pause_queue` and so on.",
            "subject": "To which job, queue or schedule.",
            "detail": "For example the state the job was in.",
            "acted_at": "When.",
        },
    ),
    "stagepost_channel": Table(
        "What is known of queues at the broker, to tell lost messages from waiting ones.",
        {
            "queue_name": "The queue.",
            "carried_since": "Since when the broker carries it: jobs that failed before are not announced.",
            "empty_since": "Since when every look found it empty.",
            "active_at": "When somebody last took a message from it.",
            "looked_at": "When somebody last looked.",
            "resent_at": "When jobs of the queue were last sent again because their messages seemed to be lost.",
            "patience_us": "How long an external program that runs its tasks may be silent; null if workers run them.",
        },
    ),
    "stagepost_outbox": Table(
        "Messages for the broker that are no jobs to run; published in their order and then deleted.",
        {
            "id": "Its number.",
            "routing_key": "Where it goes.",
            "message_id": "Its id, the same however often it is published.",
            "correlation_id": "What it belongs to.",
            "headers": "JSON.",
            "encoding": "`text`, or `base64` where text cannot hold the body.",
            "body": "The message.",
            "created_at": "When it was written.",
        },
    ),
    "stagepost_dead_message": Table(
        "Messages that nobody can work with, taken from the broker's queue of dead letters.",
        {
            "id": "Made of its message id and body: the same message has one row.",
            "queue_name": "The queue at the broker that it came from.",
            "routing_key": "Where it is sent again; empty if nobody knows.",
            "message_id": "The id that its sender gave it.",
            "correlation_id": "What it belongs to.",
            "reason": "The error without its ids and numbers, so that alike ones group.",
            "error": "Why nobody could work with it.",
            "headers": "JSON.",
            "encoding": "`text`, or `base64` where text cannot hold the body.",
            "body": "As it came.",
            "received_at": "When it was taken.",
        },
    ),
    "stagepost_migration": Table(
        "Migrations that were applied.",
        {
            "version": "Its number.",
            "name": "Its name.",
            "checksum": "SHA-256 of its text, to notice a file that was edited afterwards.",
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
