"""Mistakes of a first day: each is refused at the call, with a message that says what to write."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, JobContext, Worker
from stagepost.database.session import driver
from stagepost.errors import ConfigurationError, TaskError
from stagepost.transport.rabbitmq import address


@pytest.fixture
def app() -> Iterator[App]:
    app = App("sqlite:///:memory:")
    yield app
    app.close()


def greet(name: str) -> str:
    return name


class Mailer:
    def send(self, to: str) -> None: ...


def unresolved(order: Order) -> None:  # type: ignore[name-defined]  # noqa: F821 - the mistake of this test
    ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (5, "task got 5, which is not a function. Write @app.task above a `def` or `async def`."),
        ("greet", "task got 'greet', which is not a function"),
        (lambda name: name, "a lambda has no name of its own. Write a `def`, or pass name="),
        (Mailer.send, "Mailer.send: `self` cannot be stored. A task is a function of a module, not a method"),
        (unresolved, "unresolved: a type hint cannot be read: name 'Order' is not defined. Import it in its module"),
    ],
)
def test_what_cannot_be_a_task_is_refused(app: App, function: Callable[..., Any], words: str) -> None:
    with pytest.raises(TaskError) as caught:
        app.task(function)

    assert words in str(caught.value)


def test_a_task_cannot_be_registered_again_as_a_function(app: App) -> None:
    task = app.task(greet)

    with pytest.raises(TaskError, match=r"greet is a task already\. To register its function again"):
        app.task(task)


def test_a_lambda_with_a_name_is_a_task(app: App) -> None:
    assert app.task(name="greet")(lambda name: name).name == "greet"


def test_the_context_belongs_first(app: App) -> None:
    def send(to: str, job: JobContext) -> None: ...

    with pytest.raises(TaskError, match="parameter `job: JobContext` must be the first one"):
        app.task(send)


def test_a_rate_limiter_needs_a_rate_limit(app: App) -> None:
    with pytest.raises(ConfigurationError, match=r"rate_limiter: limit is '10/s': it must be a RateLimit"):
        app.rate_limiter("10/s")  # type: ignore[arg-type]


async def test_a_blocking_call_with_an_async_connection_names_the_async_method(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/shop.db")
    task = app.task(greet)

    with pytest.raises(ConfigurationError, match=r"is asynchronous: await the method that ends in _async"):
        async with app.transaction() as tx:
            task.using(tx).enqueue("Ada")
    await app.close_async()


def test_a_worker_needs_an_app() -> None:
    with pytest.raises(ConfigurationError, match=r"Worker: app is 'sqlite:///shop\.db': it must be an App"):
        Worker("sqlite:///shop.db")  # type: ignore[arg-type]


def test_a_worker_with_a_broker_but_no_driver_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("sqlite:///:memory:", transport="amqp://localhost/")
    app.task(greet)
    monkeypatch.setitem(sys.modules, "pika", None)
    address.driver.cache_clear()

    with pytest.raises(ConfigurationError, match=r"pip install 'stagepost\[rabbitmq\]'"):
        Worker(app)


def test_a_missing_driver_is_named_by_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql.connections", None)

    with pytest.raises(ConfigurationError, match=r"the driver pymysql is not installed: pip install 'stagepost\[mysql"):
        driver("pymysql.connections", extra="mysql")


@pytest.mark.parametrize("option", ["max_running", "per_second", "burst"])
def test_limits_of_queues_are_numbers(app: App, option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"queue limit {option} is '4': it must be"):
        app.queues.limit("mail", **{option: "4"})  # type: ignore[arg-type]


def test_an_error_at_the_start_names_the_hook_and_begins_in_it(app: App) -> None:
    app.task(greet)

    @app.on_worker_start
    def load_model() -> None:
        raise RuntimeError("no model")

    with pytest.raises(RuntimeError, match="no model") as caught:
        asyncio.run(Worker(app).run(until_idle=True))

    [note] = caught.value.__notes__
    assert note.startswith("The worker did not start, because its on_worker_start hook ")
    assert "load_model" in note
