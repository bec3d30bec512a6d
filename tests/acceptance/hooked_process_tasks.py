"""An app with hooks and tasks for processes, in a separate module, which a handler's process imports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from stagepost import App, JobContext, Permanent

app = App()
"""Finds the database in the environment, as a handler's process does."""


@app.around_attempt
def around(job: JobContext) -> Iterator[None]:
    """Notes what happens, and where."""
    _note("before")
    try:
        yield
    except BaseException as error:
        _note(type(error).__name__)
        raise
    finally:
        _note("after")


@app.on_failure
def failed(job: JobContext, error: BaseException) -> None:
    """Notes a failure."""
    _note("failed")


@app.on_failure
async def failed_async(job: JobContext, error: BaseException) -> None:
    """Notes a failure, on a loop."""
    _note("failed async")


@app.task(pool="process")
def succeed() -> int:
    """Says where it ran."""
    return os.getpid()


@app.task(pool="process")
def fail() -> None:
    """Fails for good."""
    raise Permanent("no")


def _note(what: str) -> None:
    with Path(os.environ["NOTES"]).open("a", encoding="utf-8") as file:
        file.write(f"{what} {os.getpid()}\n")
