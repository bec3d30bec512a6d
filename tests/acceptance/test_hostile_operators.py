"""No operator call lets a raw error escape: each public method of each collection is called with wrong values.

The calls are found by reflection, so a new method or parameter is covered as soon as it exists.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stagepost import App, StagepostError

COLLECTIONS = ("jobs", "dead_letters", "queues", "schedules", "workers", "batches", "gates", "runs", "events", "broker")
NEVER_ENDING = {"follow", "follow_async"}
"""Iterate forever, over pages that `page` reads."""
SOME_ID = "019a8a56-0f3e-7c44-a7d1-2b9c1d0e5a03"
REQUIRED: dict[str, Any] = {"name": "some", "job_id": SOME_ID, "run_id": SOME_ID, "letter_id": SOME_ID, "within": 1.0}
"""Right values of parameters without defaults; others get a text."""


class Unprintable:
    """Its text cannot be made, so that an error message must not try."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


WRONG: list[Any] = [
    object(), b"bytes", [1], {"a": 1}, {1}, 1j, Unprintable(), int, Exception(), True, False, math.nan, math.inf,
    -1, 0, 2**70, -(2**70), 1.5, "", " ", "a\0b", "\ud800", "x" * 10_000, "' or 1=1 --", "\N{PILE OF POO}",
]  # fmt: skip


def methods() -> Iterator[tuple[str, str]]:
    app = App("sqlite://")
    try:
        for collection in COLLECTIONS:
            for name, _ in inspect.getmembers(type(getattr(app, collection)), inspect.isfunction):
                if not name.startswith("_") and name not in NEVER_ENDING:
                    yield collection, name
    finally:
        app.close()


METHODS = list(methods())


def calls_of(method: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield arguments of which exactly one is wrong."""
    parameters = inspect.signature(method).parameters.values()
    required = {
        one.name: REQUIRED.get(one.name, "some")
        for one in parameters
        if one.default is one.empty and one.kind is not one.VAR_POSITIONAL
    }
    for one in parameters:
        for wrong in WRONG:
            if one.name == "on_progress" and callable(wrong):
                continue  # it can be called, so its errors are the caller's
            if one.kind is one.VAR_POSITIONAL:
                yield (wrong,), required
            else:
                yield (), {**required, one.name: wrong}


def test_every_collection_of_an_app_is_covered() -> None:
    app = App("sqlite://")
    collections = {
        name
        for name in dir(type(app))
        if not name.startswith("_") and type(inspect.getattr_static(type(app), name)).__name__ == "cached_property"
    }
    app.close()

    assert set(COLLECTIONS) <= collections
    assert {("events", "page"), ("runs", "get"), ("schedules", "remove_async")} <= set(METHODS)


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_a_wrong_argument_gives_our_error_or_a_result(app: App, collection: str) -> None:
    raw: list[str] = []

    async def call_all() -> None:
        for name in [name for owner, name in METHODS if owner == collection]:
            method = getattr(getattr(app, collection), name)
            for positional, named in calls_of(method):
                try:
                    answer = method(*positional, **named)
                    if inspect.isawaitable(answer):
                        await answer
                except StagepostError as error:
                    if not str(error):
                        raw.append(f"{name}: an error without a message")
                except Exception as error:  # noqa: BLE001 - all of them are reported together
                    raw.append(f"{name}({', '.join(named)}): {type(error).__name__}: {str(error)[:80]}")

    asyncio.run(call_all())

    assert sorted(set(raw)) == []


def nothing() -> None:
    """Do nothing, as the only step of a run."""


def test_a_wrong_step_of_a_run_gives_our_error(app: App) -> None:
    pipeline = app.pipeline("short")
    pipeline.step(app.task(name="first")(nothing))
    run = pipeline.start()
    for wrong in WRONG:
        with pytest.raises(StagepostError):
            run.result(wrong)
