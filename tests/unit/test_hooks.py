"""Registration of hooks: what is refused, in which words, and what a second definition replaces."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, JobContext
from stagepost.errors import ConfigurationError


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/stagepost.db")


def plain(job: JobContext) -> None: ...


async def coroutine(job: JobContext) -> None: ...


def generator() -> Iterator[None]:
    yield


def two(job: JobContext, error: BaseException) -> Iterator[None]:
    yield


@contextlib.contextmanager
def managed(job: JobContext) -> Iterator[None]:
    yield


AROUND = r"Write: def {}\(job: JobContext\) -> Iterator\[None\]: …; yield; …"


@pytest.mark.parametrize(
    ("kind", "hook", "message"),
    [
        ("around_attempt", plain, r"plain is not a generator function\. " + AROUND.format("plain")),
        ("around_attempt", coroutine, r"coroutine is not a generator function\. " + AROUND.format("coroutine")),
        ("around_attempt", generator, r"generator is called with one argument, the job: too many .*\. Write: def gen"),
        ("around_attempt", managed, r"remove the other decorator of .*managed\. " + AROUND.format("managed")),
        ("around_attempt", 5, r"around_attempt got 5, which is not a function\. " + AROUND.format("hook")),
        ("on_failure", two, r"two is a generator function\. Write: def two\(job: JobContext, error: BaseException\)"),
        ("on_failure", plain, r"plain is called with two arguments, the job and the error: too many"),
        ("on_worker_start", plain, r"with no arguments: missing a required .*Write: def plain\(\) -> None: …"),
        ("on_worker_stop", coroutine, r"on_worker_stop: .*coroutine is called with no arguments"),
    ],
)
def test_a_wrong_hook_is_refused_with_the_line_to_write(app: App, kind: str, hook: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        getattr(app, kind)(hook)


def test_a_wrong_signature_is_a_type_error_too(app: App) -> None:
    """The type checker reports a `type: ignore` that ignores nothing."""
    for register in (
        lambda: app.around_attempt(plain),  # type: ignore[type-var]
        lambda: app.around_attempt(coroutine),  # type: ignore[type-var]
        lambda: app.around_attempt(generator),  # type: ignore[type-var]
        lambda: app.around_attempt(managed),  # type: ignore[type-var]
        lambda: app.on_failure(plain),  # type: ignore[type-var]
        lambda: app.on_failure(two),  # type: ignore[type-var]
        lambda: app.on_worker_start(plain),  # type: ignore[type-var]
        lambda: app.on_worker_stop(coroutine),  # type: ignore[type-var]
    ):
        with pytest.raises(ConfigurationError):
            register()


def test_hooks_of_every_valid_kind_are_returned_as_they_are(app: App) -> None:
    def around(job: JobContext) -> Iterator[None]:
        yield

    async def around_async(job: JobContext) -> AsyncIterator[None]:
        yield

    async def failed(job: JobContext, error: BaseException) -> None: ...

    async def started() -> None: ...

    assert app.around_attempt(around) is around
    assert app.around_attempt(around_async) is around_async
    assert app.on_failure(failed) is failed
    assert app.on_worker_start(started) is started
    assert app.on_worker_stop(started) is started


def test_a_function_that_is_defined_again_replaces_the_old_one_in_its_place(app: App) -> None:
    first, second, again = (_defined(name) for name in ("first", "second", "first"))
    for hook in (first, second, again):
        app.on_worker_start(hook)

    assert app.hooks.worker_start == [again, second]


def test_closures_and_functions_named_underscore_do_not_replace_each_other(app: App) -> None:
    def closure() -> Callable[[], None]:
        def inner() -> None: ...

        return inner

    hooks = [closure(), closure(), _defined("_"), _defined("_")]
    for hook in hooks:
        app.on_worker_start(hook)

    assert app.hooks.worker_start == hooks


def _defined(name: str) -> Callable[[], None]:
    """Define a function of a module, as a notebook's cell does each time it runs."""

    def function() -> None: ...

    function.__name__ = function.__qualname__ = name
    return function
