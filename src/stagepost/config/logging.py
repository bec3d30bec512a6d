"""Adds the ids of jobs to log records, in async code and in threads, and writes records as text or JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from stagepost.errors import ConfigurationError
from stagepost.model.context import NOTHING, TraceContext, current_identity, current_trace
from stagepost.model.job import LeasedJob
from stagepost.model.option_types import check_type

__all__ = [
    "ATTEMPTS",
    "FORMAT_VARIABLE",
    "LEVEL_VARIABLE",
    "LOG_FORMATS",
    "LOG_LEVELS",
    "JobContextFilter",
    "JsonFormatter",
    "TextFormatter",
    "configure_logging",
    "job_fields",
    "log_variables",
]

ATTEMPTS = "stagepost.attempts"
"""The logger with one record per end of an attempt."""
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS = ("text", "json")
LEVEL_VARIABLE, FORMAT_VARIABLE = "STAGEPOST_LOG_LEVEL", "STAGEPOST_LOG_FORMAT"
FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
IDS = ("job_id", "task_id", "task", "attempt", "queue", "trace_id", "correlation_id", "user_id")
LABELS = {
    "job_id": "job", "attempt": "attempt", "trace_id": "trace", "correlation_id": "correlation", "user_id": "user",
}  # fmt: skip
"""What the ids are called in text."""
IN_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JobContextFilter(logging.Filter):
    """Adds job_id, task, attempt, queue, trace_id, correlation_id and user_id to every record; None outside a job.

    A field that the record already has is kept, such as the ids that a worker gives to records about a job.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields to the record, and keep every record."""
        fields = record.__dict__
        ids = {} if "job_id" in fields else _current_ids()
        for name in IDS:
            fields.setdefault(name, ids.get(name))
        if fields["task_id"] is None:
            fields["task_id"] = fields["job_id"]
        return True


def _current_ids() -> dict[str, Any]:
    identity, ids = current_identity.get(), _trace_ids(current_trace.get())
    if identity is None:
        return ids
    return ids | {
        "job_id": identity.job_id,
        "task": identity.task_name,
        "attempt": identity.attempt,
        "queue": identity.queue_name,
    }


def job_fields(job: LeasedJob) -> dict[str, Any]:
    """Return the ids of a job, as `extra` for records about it that are logged outside its handler."""
    ids = {"job_id": job.id, "task": job.task_name, "attempt": job.attempt, "queue": job.queue_name}
    try:
        trace = TraceContext.decode(job.context)
    except msgspec.MsgspecError:  # somebody wrote it by hand, and the record may be about that
        trace = NOTHING
    return ids | _trace_ids(trace)


def _trace_ids(trace: TraceContext) -> dict[str, Any]:
    return {"trace_id": trace.trace_id, "correlation_id": trace.correlation_id, "user_id": trace.user_id}


class TextFormatter(logging.Formatter):
    """Formats a record as text that ends with the ids of its job, unless the message names the job."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of the method it extends
        """Append the ids that the filter has added."""
        ids = {label: getattr(record, name, None) for name, label in LABELS.items()}
        if str(ids["job"]) in record.message:
            ids |= {"job": None, "attempt": None}
        shown = " ".join(f"{label}={value}" for label, value in ids.items() if value is not None)
        return super().formatMessage(record) + (f" [{shown}]" if shown else "")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, with all fields that `extra` and filters added to it."""

    def format(self, record: logging.LogRecord) -> str:
        """Format any record: what JSON cannot express is converted to text."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        for name, value in vars(record).items():
            if name not in IN_EVERY_RECORD and name not in fields and not (value is None and name in IDS):
                fields[name] = value
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        try:
            return _dumps(fields)
        except (TypeError, ValueError, RecursionError):
            return _dumps({name: _plain(value) for name, value in fields.items()})


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - the caller's arguments do not fit the caller's message
        return f"{_text(record.msg)} (its arguments do not fit: {_text(record.args)})"


def _dumps(value: object) -> str:
    return json.dumps(value, default=_text, allow_nan=False)


def _plain(value: object) -> object:
    try:
        return json.loads(_dumps(value))
    except (TypeError, ValueError, RecursionError):  # NaN, a circle, or keys that are not text
        return _text(value)


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - somebody else's __str__
        return f"<{type(value).__name__}>"


def configure_logging(level: str | None = None, *, format: str = "text") -> None:  # noqa: A002 - as in basicConfig
    """Log to standard error with the job's ids on each line, for programs without a logging setup of their own.

    The formats are `text` and `json`. Without a level, `info` is logged except for attempts that completed, because a
    busy worker has thousands of them a second. The level `info` includes them.
    """
    check_type("level", level, str | None)
    check_type("format", format, str)
    if level is not None and str(level).lower() not in LOG_LEVELS:
        raise ConfigurationError(f"log level is {level!r}: it must be one of {', '.join(LOG_LEVELS)}.")
    if format not in LOG_FORMATS:
        raise ConfigurationError(f"log format is {format!r}: it must be one of {', '.join(LOG_FORMATS)}.")
    handler = _WorkerHandler(level, format)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    handler.addFilter(JobContextFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel((level or "info").upper())
    logging.getLogger(ATTEMPTS).setLevel(logging.WARNING if level is None else logging.NOTSET)


def log_variables() -> Mapping[str, str]:
    """Return environment variables with which another process logs as this one does."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _WorkerHandler):
            return handler.variables
    return {}


class _WorkerHandler(logging.StreamHandler[TextIO]):
    """The handler that `configure_logging` installs."""

    def __init__(self, level: str | None, log_format: str) -> None:
        super().__init__()
        self.variables = {FORMAT_VARIABLE: log_format} | ({} if level is None else {LEVEL_VARIABLE: level.lower()})
