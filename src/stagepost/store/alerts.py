"""Alerts are enqueued in the transaction of what they tell of: neither is there without the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from stagepost.database.statement import Operation, Statements, operation
from stagepost.model.alert import Alert
from stagepost.model.job import NewJob
from stagepost.store.jobs import enqueue

__all__ = ["alerting"]

T = TypeVar("T")


@operation
def alerting(
    work: Operation[T], about: Callable[[T], Alert | None], job_for: Callable[[Alert], NewJob]
) -> Statements[tuple[T, Alert | None]]:
    """Do some work and enqueue the job that tells of what came of it, if there is anything to tell."""
    result = yield from work
    alert = about(result)
    if alert is not None:
        yield from enqueue(job_for(alert))
    return result, alert
