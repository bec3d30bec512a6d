"""Enqueues alerts in the same transaction as the change they report."""

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
    """Run an operation and enqueue the alert that `about` returns for its result, if any, in the same transaction.

    The operation must not start with an `is_enough` statement: that would commit without the alert.
    """
    result = yield from work.start()
    alert = about(result)
    if alert is not None:
        yield from enqueue(job_for(alert)).start()
    return result, alert
