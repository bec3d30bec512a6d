"""Django's tasks of the shop."""

from __future__ import annotations

import os
from typing import Any

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

context_seen: list[Any] = []
ran: list[str] = []


@task
def add(left: int, right: int = 0) -> int:
    """Return a number."""
    return left + right


@task()
async def add_async(left: int, right: int = 0) -> int:
    """Return a number from a coroutine."""
    return left + right


@task
def note(name: str) -> None:
    """Remember the order in which tasks ran."""
    ran.append(name)


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    """Return the arguments."""
    return [args, kwargs]


class ShopError(Exception):
    """An error that is not built in."""


@task
def fail(message: str) -> None:
    """Raise an error of this module."""
    raise ShopError(message)


@task
def fail_with_cause() -> None:
    """Raise an error with another as its argument."""
    raise ValueError(ValueError("inner"))


@task
async def fail_async() -> None:
    """Raise a built-in error in a coroutine."""
    raise KeyError("missing")


@task
def leave() -> None:
    """Ask the process to end."""
    raise SystemExit("left")


@task
def return_object() -> Any:
    """Return what JSON cannot hold."""
    return object()


@task(takes_context=True)
def attempt_of(context: Any, wanted: int) -> str:
    """Look at the context."""
    context_seen.append(context)
    assert context.attempt == wanted
    assert context.task_result.attempts == wanted
    return str(context.task_result.id)


@task(takes_context=True, backend="retrying")
def fail_first(context: Any) -> int:
    """Fail in the first attempt."""
    if context.attempt == 1:
        raise ConnectionError("once")
    return int(context.attempt)


@task(backend="process")
def process_id() -> int:
    """Say where this runs."""
    return os.getpid()


@task(queue_name="mail", priority=7)
def in_mail() -> None:
    """Belong to another queue."""
