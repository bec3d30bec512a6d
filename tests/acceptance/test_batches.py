"""Batches and gates through `App`, with real workers."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, AppTask, BatchState, Counts, Cursor, Item, JobContext, JobState, Permanent
from stagepost.errors import BatchClosed, BatchNotFound, ConfigurationError, GateClosed, SourceMismatch, WaitTimeout
from tests.acceptance.helpers import notes, work, work_async, write

Recognise = AppTask[[str], str]


@pytest.fixture
def recognise(app: App) -> Recognise:
    @app.task
    def recognise(file: str) -> str:
        if "silent" in file:
            raise Permanent(f"no sound in {file}")
        return file.upper()

    return recognise


@pytest.fixture
def tell(app: App) -> AppTask[[str], None]:
    @app.task
    def tell(what: str) -> None:
        with app.transaction() as tx:
            write(tx, what)

    return tell


def files(recognise: Recognise, number: int, *, first: int = 0) -> Iterator[Item]:
    """Items as a producer makes them, one by one."""
    return (recognise.item(f"f{at}", f"file {at}") for at in range(first, first + number))


def test_a_batch_from_its_first_item_to_its_end(app: App, recognise: Recognise, tell: AppTask[[str], None]) -> None:
    gate = app.gate("dataset:7", on_open=tell.job("opened"))
    assert gate.is_open()
    with app.batch("upload:42", gate=gate, on_complete=tell.job("completed")) as batch:
        assert batch.add(files(recognise, 25), chunk=10) == 25
    assert batch.state() is BatchState.SEALED
    with pytest.raises(GateClosed, match=r"batch 'upload:42': 0 of 25 done"):
        gate.check()

    work(app)

    assert batch.wait(timeout=0) is JobState.COMPLETED
    assert batch.counts() == Counts(completed=25)
    assert {item.key: item.result for item in batch.items()} == {f"f{at}": f"FILE {at}" for at in range(25)}
    gate.check()
    gate.wait(timeout=0)
    assert notes(app) == ["completed", "opened"]


def test_a_batch_from_its_first_item_to_its_end_in_async_code(app: App, recognise: Recognise) -> None:
    async def source() -> AsyncIterator[Item]:
        for item in files(recognise, 25):
            yield item

    async def main() -> None:
        gate = app.gate("dataset:7")
        async with app.batch("upload:42", gate=gate) as batch:
            assert await batch.add_async(source(), chunk=10) == 25
            assert await batch.add_async(files(recognise, 30), chunk=10) == 5
        assert await batch.state_async() is BatchState.SEALED
        assert not await gate.is_open_async()
        with pytest.raises(GateClosed):
            await gate.check_async()
        await work_async(app)
        assert await batch.wait_async(timeout=0) is JobState.COMPLETED
        await gate.wait_async(timeout=0)
        assert (await batch.progress_async()).fraction == 1.0
        assert len([item async for item in batch.items_async([JobState.COMPLETED])]) == 30

    asyncio.run(main())


def test_a_batch_whose_body_raises_stays_open(app: App, recognise: Recognise) -> None:
    def plain() -> None:
        with batch:
            batch.add(files(recognise, 1))
            raise ZeroDivisionError

    async def asynchronous() -> None:
        async with batch:
            raise ZeroDivisionError

    batch = app.batch("upload:42")
    with pytest.raises(ZeroDivisionError):
        plain()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(asynchronous())
    assert batch.state() is BatchState.OPEN


def test_nothing_is_stored_before_the_first_item(app: App) -> None:
    batch = app.batch("upload:42")

    for look in (batch.stored, batch.state, batch.counts, batch.progress, batch.wait, batch.failed, batch.cancel):
        with pytest.raises(BatchNotFound, match="'upload:42' does not exist"):
            look()


def broken(items: Iterator[Item], after: int, error: type[BaseException]) -> Iterator[Item]:
    """A source that fails after so many items."""
    for _ in range(after):
        yield next(items)
    raise error


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_producer_that_fails_is_resumed(app: App, recognise: Recognise, error: type[BaseException]) -> None:
    batch = app.batch("upload:42")
    with pytest.raises(error):
        batch.add(broken(files(recognise, 100), 35, error), chunk=10)
    assert batch.stored().cursor == Cursor(30, "f29")

    with pytest.raises(error):
        batch.resume(broken(files(recognise, 100), 58, error), chunk=10)
    assert batch.stored().cursor == Cursor(50, "f49")
    cursors = []

    def rest(cursor: Cursor) -> Iterator[Item]:
        cursors.append(cursor)
        return files(recognise, 100 - cursor.position, first=cursor.position)

    assert batch.resume(rest) == 50
    assert batch.resume(files(recognise, 100)) == 0
    assert batch.add(files(recognise, 100)) == 0
    assert cursors == [Cursor(50, "f49")]
    assert batch.counts() == Counts(queued=100)


def test_another_source_is_refused(app: App, recognise: Recognise) -> None:
    batch = app.batch("upload:42")
    batch.add(files(recognise, 30))

    with pytest.raises(SourceMismatch, match="in this source that item is 'f34'"):
        batch.resume(files(recognise, 100, first=5))
    with pytest.raises(SourceMismatch, match="this source ends before that"):
        batch.resume(files(recognise, 20))
    with pytest.raises(SourceMismatch, match="this source ends before that"):
        asyncio.run(batch.resume_async(files(recognise, 20)))
    assert batch.counts() == Counts(queued=30)


def test_an_async_producer_that_fails_is_resumed(app: App, recognise: Recognise) -> None:
    batch = app.batch("upload:42")

    async def rest(cursor: Cursor) -> AsyncIterator[Item]:
        for item in files(recognise, 100 - cursor.position, first=cursor.position):
            yield item

    async def main() -> None:
        with pytest.raises(OSError):
            await batch.add_async(broken(files(recognise, 100), 35, OSError), chunk=10)
        assert await batch.resume_async(rest, chunk=10) == 70
        assert await batch.resume_async(files(recognise, 100)) == 0

    asyncio.run(main())
    assert batch.counts() == Counts(queued=100)


def test_an_error_of_the_store_ends_the_producer(app: App, recognise: Recognise) -> None:
    batch = app.batch("upload:42")
    taken = 0

    def source() -> Iterator[Item]:
        nonlocal taken
        for item in files(recognise, 1000):
            taken += 1
            if taken == 15:
                batch.seal()
            yield item

    with pytest.raises(BatchClosed, match="'upload:42' is sealed"):
        batch.add(source(), chunk=10)

    assert taken <= 40
    assert batch.counts().total <= 20


def test_items_are_added_in_the_callers_transaction(app: App, recognise: Recognise) -> None:
    batch = app.batch("upload:42", gate="dataset:7")

    def roll_back() -> None:
        with app.transaction() as tx:
            batch.add(files(recognise, 3), tx=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        roll_back()
    assert app.gate("dataset:7").is_open()

    with app.transaction() as tx:
        write(tx, "paid")
        assert batch.add(files(recognise, 3), tx=tx) == 3
        batch.seal(tx=tx)
        assert batch.counts(tx=tx) == Counts(queued=3)

    assert notes(app) == ["paid"]
    assert batch.state() is BatchState.SEALED
    with pytest.raises(GateClosed), app.transaction() as tx:
        app.gate("dataset:7").check(tx=tx)
    work(app)
    with app.transaction() as tx:
        app.gate("dataset:7").check(tx=tx)


def test_failed_items_are_grouped_retried_and_waived(app: App, recognise: Recognise) -> None:
    batch = app.batch("upload:42", on_failed="hold", gate="dataset:7")
    batch.add(recognise.item(f"s{at}", f"silent {at}") for at in range(3))
    batch.add(files(recognise, 2))
    batch.seal()
    work(app)

    [group] = batch.failed()
    assert (group.reason, group.items) == ("Permanent: no sound in silent #", 3)
    assert batch.state() is BatchState.SEALED
    with pytest.raises(GateClosed, match="5 of 5 done, 3 failed"):
        app.gate("dataset:7").check()
    assert batch.retry(["s1", "f0"], actor="ada") == 1
    work(app)
    with pytest.raises(ConfigurationError, match="give the reason as `why`"):
        batch.waive(why=" ")
    assert batch.waive(why="test tones", actor="ada") == 3

    assert batch.wait(timeout=0) is JobState.COMPLETED
    assert batch.counts() == Counts(completed=2, waived=3)
    assert batch.retry() == 0


def test_a_cancelled_batch_ends(app: App, recognise: Recognise) -> None:
    batch = app.batch("upload:42")
    batch.add(files(recognise, 1200))

    assert batch.cancel(actor="ada") is BatchState.DONE
    assert batch.stored().outcome is JobState.CANCELLED
    assert batch.counts() == Counts(cancelled=1200)
    with pytest.raises(BatchClosed, match="is cancelled"):
        batch.add(files(recognise, 1, first=5000))


def test_items_are_exported_as_lines_of_json(app: App, recognise: Recognise, tmp_path: Path) -> None:
    batch = app.batch("upload:42")
    batch.add([recognise.item("a", "x"), recognise.item("b", "silent")])
    work(app)
    text, binary, path = io.StringIO(), io.BytesIO(), tmp_path / "items.ndjson"

    assert (batch.export(text), batch.export(binary), batch.export(path)) == (2, 2, 2)
    assert asyncio.run(batch.export_async(path, [JobState.COMPLETED])) == 1

    assert sorted((json.loads(line) for line in text.getvalue().splitlines()), key=lambda line: line["key"]) == [
        {"key": "a", "state": "completed", "result": "X", "error": None},
        {"key": "b", "state": "failed", "result": None, "error": "Permanent: no sound in silent"},
    ]
    assert binary.getvalue().decode() == text.getvalue()
    assert json.loads(path.read_text())["key"] == "a"


def test_waiting_ends_in_time(app: App, recognise: Recognise) -> None:
    batch = app.batch("upload:42", gate="dataset:7")
    batch.add(files(recognise, 1))

    with pytest.raises(WaitTimeout, match="batch 'upload:42' was not done within 0 s"):
        batch.wait(timeout=0)
    with pytest.raises(WaitTimeout, match="gate 'dataset:7' did not open within 0 s"):
        app.gate("dataset:7").wait(timeout=0)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda app: app.batch(" x"), "white space"),
        (lambda app: app.batch("x", gate=""), "gate name"),
        (lambda app: app.gate("x" * 192), "192 characters"),
        (lambda app: app.batch("x", on_failed="explode"), "on_failed is 'explode': it must be 'finish' or 'hold'"),
        (lambda app: app.batch("x").add([], chunk=0), "chunk is 0"),
    ],
)
def test_an_invalid_use_is_a_clear_error(app: App, make: Callable[[App], Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        make(app)


def test_a_handlers_own_completion_ends_the_batch(app: App) -> None:
    @app.task
    def store_it(job: JobContext, note: str) -> None:
        with app.transaction() as tx:
            write(tx, note)
            job.complete(tx)

    with app.batch("upload:42") as batch:
        batch.add(store_it.item(f"f{at}", f"note {at}") for at in range(5))

    work(app)

    assert batch.wait(timeout=0) is JobState.COMPLETED
    assert len(notes(app)) == 5
