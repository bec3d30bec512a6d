"""Many jobs of one task enqueued at once: `task.enqueue_many`, with options, in transactions, in both colours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any

import pytest

from stagepost import App, AppTask, JobState, Worker
from stagepost.errors import ConfigurationError, PayloadError
from tests.acceptance.helpers import work

MANY = 150
"""More than are worth inserting one by one."""


@pytest.fixture
def square(app: App) -> AppTask[[int], int]:
    @app.task
    def square(number: int) -> int:
        return number**2

    return square


@pytest.mark.parametrize("number", [0, 1, 3, MANY])
def test_many_jobs_of_one_task_return_their_results_in_order(
    app: App, square: AppTask[[int], int], number: int
) -> None:
    handles = square.enqueue_many([(n,) if n % 2 else {"number": n} for n in range(number)])

    work(app)

    assert [handle.result(timeout=0) for handle in handles] == [n**2 for n in range(number)]
    assert all(handle.is_new for handle in handles)


async def test_many_jobs_are_enqueued_from_async_code(app: App, square: AppTask[[int], int]) -> None:
    handles = await square.enqueue_many_async([(n,) for n in range(MANY)])
    urgent = await square.using(priority=9).enqueue_many_async(tuple((n,) for n in range(3)))
    with pytest.raises(PayloadError, match=rf"arguments\[{MANY}\]"):
        await square.enqueue_many_async([*((n,) for n in range(MANY)), ("three",)])

    await Worker(app).run(until_idle=True)

    assert [await handle.result_async(timeout=0) for handle in handles] == [n**2 for n in range(MANY)]
    assert [app.client.job(handle.id).priority for handle in urgent] == [9, 9, 9]
    assert len(app.client.jobs(limit=1000)) == MANY + 3


@pytest.mark.parametrize("number", [3, MANY])
def test_many_jobs_exist_if_and_only_if_the_callers_transaction_commits(
    app: App, square: AppTask[[int], int], number: int
) -> None:
    with app.transaction() as tx:
        kept = square.using(tx, delay=60).enqueue_many([(n,) for n in range(number)])
    with contextlib.suppress(LookupError), app.transaction() as tx:
        square.using(tx).enqueue_many([(n,) for n in range(number)])
        raise LookupError("no stock")

    assert [job.id for job in app.client.jobs(limit=1000)] == [handle.id for handle in kept][::-1]
    assert {job.state for job in app.client.jobs(limit=1000)} == {JobState.SCHEDULED}


@pytest.mark.parametrize("number", [3, MANY])
@pytest.mark.parametrize(
    ("options", "rung"),
    [({}, [{"default"}]), ({"queue": "other"}, [{"other"}]), ({"delay": 60}, [])],
    ids=["as usual", "elsewhere", "delayed"],
)
def test_workers_in_this_process_are_notified_of_many_jobs_at_once(
    app: App, square: AppTask[[int], int], options: dict[str, Any], rung: list[set[str]], number: int
) -> None:
    heard: list[Collection[str]] = []
    app.store.notifier.subscribe(heard.append)

    square.using(**options).enqueue_many([(n,) for n in range(number)])

    assert heard == rung


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda task: task.enqueue_many((n,) for n in range(3)), ConfigurationError, r"come from a generator"),
        (lambda task: task.enqueue_many({(1,), (2,)}), ConfigurationError, r"come from a set"),
        (
            lambda task: task.enqueue_many([1, 2]),
            PayloadError,
            r"arguments\[0\]: .* type int.*such as \(1,\)",
        ),
        (lambda task: task.enqueue_many([(1,), (2, 3)]), PayloadError, r"arguments\[1\]: .*2 were given"),
        (
            lambda task: task.using(id="0196a3a6-0000-7000-8000-000000000001").enqueue_many([(1,)]),
            ConfigurationError,
            r"can identify only one job",
        ),
    ],
    ids=["generator", "set", "numbers", "too many arguments", "one id"],
)
def test_invalid_arguments_for_many_jobs_are_an_error_that_says_what_to_do(
    app: App, square: AppTask[[int], int], ask: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ask(square)

    assert app.client.jobs() == []
