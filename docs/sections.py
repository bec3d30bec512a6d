"""The sections of the pages that follow from the code, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

import click

from docs.source import fields_of, methods_of, notes_of, table
from docs.tables import TABLES, check_against_migrations
from stagepost import Batch, FailedGroup, FailureRecord, Job, PayloadLimits, RunView, StepView, errors
from stagepost.cli.errors import ExitCode
from stagepost.cli.main import cli
from stagepost.cli.options import common_options
from stagepost.cli.worker import MUST_RESTART
from stagepost.client import App, AppTask, Client, JobContext, JobHandle
from stagepost.client.batches import BatchHandle
from stagepost.client.broker import Broker
from stagepost.client.children import Child, Submission
from stagepost.client.dead_letters import DeadLetters
from stagepost.client.gates import Gate
from stagepost.client.jobs import Jobs
from stagepost.client.limiter import RateLimiter
from stagepost.client.listings import Batches, Gates, Runs
from stagepost.client.pipelines import Pipeline
from stagepost.client.queues import Queues
from stagepost.client.runs import RunHandle
from stagepost.client.schedules import Schedules
from stagepost.client.tasks import Request
from stagepost.client.workers import Workers
from stagepost.config import Settings
from stagepost.config.rabbitmq import BrokerQueueSettings, RabbitmqSettings
from stagepost.config.settings import PREFIX
from stagepost.database.transaction import ASYNC_ADAPTERS, SYNC_ADAPTERS
from stagepost.model.alert import Alert, AlertKind
from stagepost.model.lifecycle import FINAL, TRANSITIONS, WHEN_LIMITED, Cause, JobState
from stagepost.model.options import JobOptions, TaskOptions
from stagepost.model.rate import RateLimit
from stagepost.model.retry import RetryPolicy
from stagepost.operations import BulkResult, DeadLetterGroup, Queue, RegisteredWorker, Schedule
from stagepost.store.health import WEAKNESSES
from stagepost.testing import AttemptRecord, Drained, Manual
from stagepost.worker import Worker
from stagepost.worker.loop import RunsOn
from stagepost.worker.loop_table import LOOPS

__all__ = ["SECTIONS", "commands"]

EXIT_CODES = {
    ExitCode.OK: "Done, or the answer is yes.",
    ExitCode.FAILED: "It failed, or the answer is no.",
    ExitCode.USAGE: "Wrong usage, options or settings.",
    ExitCode.UNREACHABLE: "The database or the broker cannot be reached.",
    ExitCode.SCHEMA: "The database's tables are out of date.",
}

CAUSES = {
    Cause.BLOCK: "A claim found no room under its limit, no token for its rate, or no worker that knows its task.",
    Cause.UNBLOCK: "Its limit has room for it, its rate has a token, or a worker knows its task.",
    Cause.PROMOTE: "It is due.",
    Cause.DEFER: 'It is enqueued again with `on_conflict="debounce"`, or its token grows back at that time.',
    Cause.CLAIM: "A worker leases it and starts a new attempt.",
    Cause.COMPLETE: "The handler returned, or called `job.complete`.",
    Cause.COMPLETE_WITH_ERRORS: "Its children have ended, and some did not complete.",
    Cause.RETRY: "The handler raised an error that is retried, and attempts are left.",
    Cause.SNOOZE: "The handler asked to run again later.",
    Cause.REFUSE: "The handler raised a permanent error.",
    Cause.EXHAUST: "Its last allowed failure, or its third crash.",
    Cause.RELEASE: "Its worker shut down, or died and its lease ended.",
    Cause.WAIT: "It has children, and its handler ended or somebody cancelled it.",
    Cause.RESUME: "Its children have ended, and it continues with its continuation.",
    Cause.CANCEL: "Somebody cancelled it, or its own handler did.",
    Cause.RESTART: "Somebody retried it.",
    Cause.WAIVE: "Somebody let its batch finish without it.",
}
CHILDREN = {
    Cause.COMPLETE: "Its children have ended, and all of them completed.",
    Cause.REFUSE: "Its children have ended. Its handler had failed, or `on_child_failed` is `fail` and a child failed.",
    Cause.EXHAUST: "Its children have ended. It had already reached its last failure or third crash.",
    Cause.CANCEL: "Its children have ended. It was cancelled together with them.",
}
"""What these causes mean for a job that waits for its children."""

WITHOUT_ATTEMPT = {
    Cause.REFUSE: "Its message for the broker could not be routed for too long.",
    Cause.EXHAUST: "The broker dead-lettered its message, because it expired or was rejected.",
}
"""What these causes mean for a job that no worker has taken."""

SECTION_VARIABLES = {"rabbitmq": f"`{PREFIX}RABBITMQ_…`", "queue": "none"}
"""Settings that are a section of the file, and how the environment gives them."""


def _options(cls: type) -> Callable[[], str]:
    def make() -> str:
        rows = [(f"`{field.name}`", field.default, field.note) for field in fields_of(cls)]
        return table(("option", "default", "meaning"), rows)

    return make


def _fields(cls: type) -> Callable[[], str]:
    def make() -> str:
        return table(("field", "meaning"), [(f"`{field.name}`", field.note) for field in fields_of(cls)])

    return make


def _members(cls: type[StrEnum]) -> Callable[[], str]:
    def make() -> str:
        notes = notes_of(cls)
        return table((cls.__name__, "meaning"), [(f"`{member}`", notes[member.name]) for member in cls])

    return make


def _methods(*classes: type, leave_out: str = "") -> Callable[[], str]:
    def make() -> str:
        found = [method for cls in classes for method in methods_of(cls, leave_out=frozenset(leave_out.split()))]
        return table(("name", "what it does"), [(f"`{method.call}`", method.note) for method in found])

    return make


def _settings(cls: type, prefix: str) -> Callable[[], str]:
    def make() -> str:
        rows = [
            (
                f"`{field.name}`",
                SECTION_VARIABLES.get(field.name, f"`{prefix}{field.name.upper()}`"),
                field.default,
                field.note,
            )
            for field in fields_of(cls)
        ]
        return table(("setting", "environment", "default", "meaning"), rows)

    return make


def _errors() -> str:
    rows = []
    for name in errors.__all__:
        cls = getattr(errors, name)
        rows.append((f"`{name}`", f"`{cls.__base__.__name__}`", (cls.__doc__ or "").strip()))
    return table(("error", "is a", "meaning"), rows)


def _drivers() -> str:
    rows = [(f"`{package}.{name}`", "sync") for package, name in sorted(SYNC_ADAPTERS)]
    rows += [(f"`{package}.{name}`", "async") for package, name in sorted(ASYNC_ADAPTERS)]
    return table(("class", "sync or async"), rows)


def commands() -> Iterator[tuple[str, click.Command]]:
    """List every command with all words of its name."""
    for name, command in cli.commands.items():
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", found) for inner, found in command.commands.items())
        else:
            yield name, command


def _cli() -> str:
    return "\n\n".join([_common(), *(_command(name, command) for name, command in commands())])


def _shared() -> list[click.Option]:
    return [option for option in common_options() if isinstance(option, click.Option)]


def _common() -> str:
    rows = [(f"`{option.opts[0]}`", option.help or "") for option in _shared()]
    return "Every command accepts these options:\n\n" + table(("option", "meaning"), rows)


def _command(name: str, command: click.Command) -> str:
    common = {text for option in _shared() for text in option.opts}
    arguments = [
        param.make_metavar(click.Context(command)) for param in command.params if isinstance(param, click.Argument)
    ]
    rows = [
        (f"`{', '.join(option.opts)}`", option.help or "")
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not common & set(option.opts)
    ]
    note = (command.help or "").split("\n\n")[0]
    parts = [f"#### `{' '.join(['stagepost', name, *arguments])}`", note]
    return "\n\n".join(parts + ([table(("option", "meaning"), rows)] if rows else []))


def _exit_codes() -> str:
    if unknown := [code for code in ExitCode if code not in EXIT_CODES]:
        raise LookupError(f"docs/sections.py: say in EXIT_CODES what {unknown} mean.")
    rows = [(str(int(code)), EXIT_CODES[code]) for code in ExitCode]
    rows.append((str(MUST_RESTART), "`worker`: handlers that do not stop occupy all its slots; restart the worker."))
    return table(("code", "meaning"), rows)


def _tables() -> str:
    check_against_migrations()
    parts = []
    for name, described in TABLES.items():
        rows = [(f"`{column}`", meaning) for column, meaning in described.columns.items()]
        parts.append(f"#### `{name}`\n\n{described.purpose}\n\n" + table(("column", "meaning"), rows))
    return "\n\n".join(parts)


def _loops() -> str:
    rows = []
    for loop in LOOPS:
        path = loop.service.__module__.removeprefix("stagepost.").replace(".", "/")
        is_conditional = loop.needs_broker and loop.runs_on is RunsOn.EVERY_WORKER
        where = f"{loop.runs_on} with a broker" if is_conditional else str(loop.runs_on)
        rows.append((f"`{loop.name}`", f"`{loop.service.__name__}` (`{path}.py`)", loop.purpose, where, loop.interval))
    return table(("loop", "class", "what it does", "runs on", "interval"), rows)


def _durability() -> str:
    rows = [
        (f"`{weak.setting}`", ", ".join(f"`{value}`" for value in sorted(weak.sound)), weak.loss) for weak in WEAKNESSES
    ]
    return table(("setting", "sound values", "with any other"), rows)


def _diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", "    direction LR"]
    lines += [f"    [*] --> {state}" for state in (JobState.QUEUED, JobState.SCHEDULED, JobState.BLOCKED)]
    arrows: dict[tuple[JobState, JobState], list[str]] = {}
    for (state, cause), target in TRANSITIONS.items():
        if cause not in {Cause.CANCEL, Cause.RESTART} and state is not target:
            arrows.setdefault((state, target), []).append(cause)
    lines += [f"    {state} --> {target}: {', '.join(causes)}" for (state, target), causes in arrows.items()]
    lines += [f"    {state} --> [*]" for state in JobState if state in FINAL]
    return "\n".join([*lines, "```"])


def _transitions() -> str:
    rows = [(f"`{state}`", f"`{cause}`", _target(state, cause), _when(state, cause)) for state, cause in TRANSITIONS]
    return table(("from", "cause", "to", "when"), rows)


def _target(state: JobState, cause: Cause) -> str:
    limited = WHEN_LIMITED.get((state, cause))
    return f"`{TRANSITIONS[state, cause]}`" + (f"; `{limited}` if its task is remote and limited" if limited else "")


def _when(state: JobState, cause: Cause) -> str:
    if cause not in CAUSES:
        raise LookupError(f"docs/sections.py: say in CAUSES when `{cause}` happens.")
    if JobState.WAITING in {state, TRANSITIONS[state, cause]}:
        return CHILDREN.get(cause, CAUSES[cause])
    if state is JobState.QUEUED:
        return WITHOUT_ATTEMPT.get(cause, CAUSES[cause])
    return CAUSES[cause]


SECTIONS: dict[str, Callable[[], str]] = {
    "settings": _settings(Settings, PREFIX),
    "rabbitmq-settings": _settings(RabbitmqSettings, f"{PREFIX}RABBITMQ_"),
    "rabbitmq-queue": _options(BrokerQueueSettings),
    "task-options": _options(TaskOptions),
    "job-options": _options(JobOptions),
    "retry-policy": _options(RetryPolicy),
    "rate-limit": _options(RateLimit),
    "limits": _options(PayloadLimits),
    "alert": _fields(Alert),
    "alert-kinds": _members(AlertKind),
    "app": _methods(App),
    "jobs": _methods(Jobs),
    "dead-letters": _methods(DeadLetters),
    "queues": _methods(Queues),
    "schedules": _methods(Schedules),
    "workers": _methods(Workers),
    "lists": _methods(Batches, Gates, Runs),
    "broker": _methods(Broker),
    "bulk-result": _fields(BulkResult),
    "queue-record": _fields(Queue),
    "schedule-record": _fields(Schedule),
    "worker-record": _fields(RegisteredWorker),
    "dead-letter-group": _fields(DeadLetterGroup),
    "task-methods": _methods(AppTask),
    "request-methods": _methods(Request),
    "job-handle": _methods(JobHandle),
    "job-context": _methods(JobContext),
    "submission": _methods(Submission),
    "child": _options(Child),
    "client": _methods(Client, leave_out="submit submit_async"),
    "job-record": _methods(Job),
    "failure-record": _fields(FailureRecord),
    "batch-record": _fields(Batch),
    "failed-group": _fields(FailedGroup),
    "run-view": _fields(RunView),
    "step-view": _fields(StepView),
    "manual": _methods(Manual),
    "drained": _methods(Drained),
    "attempt-record": _fields(AttemptRecord),
    "rate-limiter": _methods(RateLimiter),
    "batch-handle": _methods(BatchHandle),
    "gate": _methods(Gate),
    "pipeline": _methods(Pipeline, leave_out="plan check_circles"),
    "run-handle": _methods(RunHandle),
    "worker": _methods(Worker),
    "errors": _errors,
    "drivers": _drivers,
    "cli": _cli,
    "exit-codes": _exit_codes,
    "tables": _tables,
    "loops": _loops,
    "durability": _durability,
    "diagram": _diagram,
    "transitions": _transitions,
}
