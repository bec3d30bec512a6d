"""Adds the ids of the current job to log records, in async code and in threads."""

from __future__ import annotations

import logging

from stagepost.errors import ConfigurationError
from stagepost.model.context import current_identity, current_trace
from stagepost.model.option_types import check_type

__all__ = ["JobContextFilter", "configure_logging"]

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s%(job_suffix)s"


class JobContextFilter(logging.Filter):
    """Adds job_id, task, attempt, trace_id, correlation_id and user_id to every record; None outside a job."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields to the record, and keep every record."""
        identity, trace = current_identity.get(), current_trace.get()
        facts = {
            "job": identity.job_id if identity else None,
            "attempt": identity.attempt if identity else None,
            "trace": trace.trace_id,
            "correlation": trace.correlation_id,
            "user": trace.user_id,
        }
        shown = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
        record.__dict__.update(
            job_id=facts["job"],
            task_id=facts["job"],
            task=identity.task_name if identity else None,
            attempt=facts["attempt"],
            trace_id=trace.trace_id,
            correlation_id=trace.correlation_id,
            user_id=trace.user_id,
            job_suffix=f" [{shown}]" if shown else "",
        )
        return True


def configure_logging(level: str = "INFO") -> None:
    """Log to standard error with the job's ids on each line, for programs without a logging setup of their own."""
    check_type("level", level, str)
    if level.upper() not in logging.getLevelNamesMapping():
        raise ConfigurationError(f"level is {level!r}: it must be debug, info, warning, error or critical.")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(JobContextFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
