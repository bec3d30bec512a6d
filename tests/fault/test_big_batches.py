"""F61: a big batch loses and duplicates nothing, and is counted exactly, while producer and workers are killed."""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from stagepost.client.app import App
from stagepost.client.batches import BatchHandle
from stagepost.model.batch import BatchState, Counts
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import CRASHES_ALLOWED
from tests.depth import sized
from tests.fault.arena import Arena
from tests.fault.backends import connect, execute
from tests.fault.nursery import WorkerProcess
from tests.fault.uploads import GATE, KEY, Upload, has_effect, is_broken, is_late, key_of

log = logging.getLogger(__name__)

WORKERS = 3
SAMPLE_SECONDS = 1.0
MOST_MEMORY = 200 * 2**20
ROWS = (
    "select state, count(*) from (select state from stagepost_job where batch_id = :id union all "
    "select state from stagepost_job_history where batch_id = :id) as item group by state"
)
ITEM = "id, item_key, state, attempts, failures, crashes"
TABLES = ("stagepost_job", "stagepost_job_history")
BEGIN = {
    "sqlite": "begin",
    "postgres": "begin isolation level repeatable read",
    "mariadb": "start transaction with consistent snapshot",
}


@dataclass(frozen=True)
class Storm:
    """How many are killed, and how long they live."""

    producers: int
    workers: int
    life_seconds: tuple[float, float]
    drain_seconds: float


BRIEF = Storm(producers=sized(3, 20), workers=sized(4, 30), life_seconds=(0.3, 1.2), drain_seconds=500)
FILES, CHUNK = sized(2_000, 20_000), sized(100, 250)
LASTING = Storm(producers=20, workers=100, life_seconds=(1.0, 8.0), drain_seconds=1500)


@pytest.mark.timeout(1100)
def test_a_big_batch_is_exact_while_producer_and_workers_are_killed(arena: Arena) -> None:
    weather(arena, Upload(files=FILES, chunk=CHUNK), BRIEF)


@pytest.mark.nightly
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
def test_half_a_million_items_are_exact_while_producer_and_workers_are_killed(arena: Arena) -> None:
    weather(arena, Upload(files=500_000, chunk=5_000), LASTING)


def weather(arena: Arena, upload: Upload, storm: Storm) -> None:
    """Run one upload through a storm, and look at what it leaves."""
    began_at = time.monotonic()
    with Watch(arena, upload) as watch:
        producers, workers = Producers(arena, upload, storm.producers), Workers(arena, storm)
        arena.wait(
            lambda: all([producers.step(), workers.step(), watch.step()]),
            "the storm to end",
            seconds=storm.drain_seconds,
        )
        stormed = time.monotonic() - began_at
        arena.wait(lambda: watch.step() and watch.is_over(), "the batch to end", seconds=storm.drain_seconds)
        watch.look()
    log.info(
        "%s: %d items in %.0f s, the storm took %.0f s; killed %d producers, %d while adding, and %d workers; "
        "%d samples; a producer's peak memory was %.0f MB",
        *(arena.backend.name, upload.files, time.monotonic() - began_at, stormed),
        *(producers.kills, producers.hits, workers.kills, watch.samples, producers.peak_bytes / 2**20),
    )
    assert producers.hits > storm.producers / 2, "too few producers were killed while they added items"
    assert producers.peak_bytes < MOST_MEMORY
    check_items(arena, upload)
    check_ending(arena)


class Producers:
    """One producer at a time, killed when the batch has grown past a random size, or soon after.

    It waits for that before its last file, and before it is far ahead of us.
    """

    def __init__(self, arena: Arena, upload: Upload, number: int) -> None:
        self.kills, self.hits, self.peak_bytes = 0, 0, 0
        self._arena, self._upload = arena, upload
        self._points = sorted(arena.random.randrange(upload.files - 2 * upload.chunk) for _ in range(number))
        self._due: float | None = None
        self._start()

    def step(self) -> bool:
        """Kill and replace the producer when its time has come; returns whether the last one has ended by itself."""
        if self._producer.status is not None:
            assert self._producer.wait() == 0, self._producer.logged()
            self._take_peak()
            if not self._points:
                return True
            self._start()  # one more repeats an upload that is sealed
        if not self._points:
            return False
        if self._due is None and self._position() >= self._points[0]:
            self._due = time.monotonic() + self._arena.random.uniform(0, 0.1)
        if self._due is not None and time.monotonic() >= self._due:
            self._kill()
        return False

    def _kill(self) -> None:
        self._producer.kill()
        if self._producer.wait() == -signal.SIGKILL:
            self._points.pop(0)
            self.kills += 1
            self.hits += self._state() != BatchState.DONE and self._position() < self._upload.files
        self._take_peak()
        self._start()

    def _start(self) -> None:
        self._due = None
        skips = self._arena.random.random() < 0.5
        files, chunk = self._upload.files, self._upload.chunk
        halt = min(self._points[0] + 10 * chunk, files - 1) if self._points else None
        self._producer = self._arena.start_producer(Upload(files, chunk, skips, halt))

    def _take_peak(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self._producer.peak_bytes)

    def _position(self) -> int:
        rows = self._arena.backend.rows("select position from stagepost_batch where batch_key = :key", key=KEY)
        return int(rows[0][0]) if rows else 0

    def _state(self) -> str | None:
        rows = self._arena.backend.rows("select state from stagepost_batch where batch_key = :key", key=KEY)
        return rows[0][0] if rows else None


class Workers:
    """Some workers, each killed after a random time, except those that remain at the end."""

    def __init__(self, arena: Arena, storm: Storm) -> None:
        self.kills = 0
        self._arena, self._storm = arena, storm
        self._dues: dict[WorkerProcess, float] = {}

    def step(self) -> bool:
        """Kill and replace those whose time has come; returns whether enough were killed, and one of them at work."""
        while len(self._dues) < WORKERS:
            life = self._arena.random.uniform(*self._storm.life_seconds) * max(1, self.kills - self._storm.workers + 1)
            self._dues[self._arena.start_worker(prefetch=32)] = time.monotonic() + life
        for worker in [worker for worker, due in self._dues.items() if due <= time.monotonic()]:
            if self._is_enough():
                return True
            worker.kill()
            assert worker.wait() == -signal.SIGKILL, worker.logged()
            self.kills += 1
            del self._dues[worker]
        return self._is_enough()

    def _is_enough(self) -> bool:
        return self.kills >= self._storm.workers and self._arena.crashes() > 0


class Watch:
    """Compares every second what the batch says with its rows, all at one moment."""

    def __init__(self, arena: Arena, upload: Upload) -> None:
        self.samples = 0
        self._arena, self._files = arena, upload.files
        self._app = App(arena.backend.url, auto_migrate=False)
        self._batch: BatchHandle = self._app.batch(KEY)
        self._connection = connect(arena.backend.url)
        self._looked_at = 0.0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._app.close()

    def step(self) -> bool:
        """Look when it is time to; returns True."""
        if time.monotonic() - self._looked_at > SAMPLE_SECONDS:
            self.look()
            self._looked_at = time.monotonic()
        return True

    def is_over(self) -> bool:
        """Whether all jobs have ended: items, and what the batch and the gate enqueued."""
        [(live,)] = self._arena.backend.rows("select count(*) from stagepost_job")
        [(state,)] = self._arena.backend.rows("select state from stagepost_batch")
        return bool(live == 0 and state == BatchState.DONE)

    def look(self) -> None:
        """Compare, in one snapshot, counts with rows, the cursor with both, and the end with what follows from it."""
        with self._snapshot() as tx:
            stored = execute(tx, "select id from stagepost_batch where batch_key = :key", {"key": KEY})
            if not stored:
                return
            batch, counts = self._batch.stored(tx=tx), self._batch.counts(tx=tx)
            rows = Counter({JobState(state): number for state, number in execute(tx, ROWS, {"id": batch.id})})
            followers = followers_in(tx)
            [(unfinished, openings)] = execute(
                tx, "select unfinished, openings from stagepost_gate where name = :name", {"name": GATE}
            )
        self.samples += 1
        where = f"sample {self.samples}, seed {self._arena.seed}, {batch}"
        assert counts == Counts(**{str(state): number for state, number in rows.items()}), where
        assert batch.cursor.position == counts.total, where
        is_done = batch.state is BatchState.DONE
        assert not is_done or (counts.total, counts.live) == (self._files, 0), where
        assert followers == ({"transfer_completed": 1, "transfer_opened": 1} if is_done else {}), where
        assert (unfinished, openings) == ((0, 1) if is_done else (1, 0)), where

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[Any]:
        execute(self._connection, BEGIN[self._arena.backend.name])
        try:
            yield self._connection
        finally:
            execute(self._connection, "rollback")


def followers_in(tx: Any) -> dict[str, int]:
    """How many jobs the batch and the gate enqueued, by their tasks."""
    names = "('transfer_completed', 'transfer_opened')"
    sources = [f"select task_name from {table} where task_name in {names}" for table in TABLES]
    rows = execute(tx, f"select task_name, count(*) from ({' union all '.join(sources)}) as job group by task_name")
    return dict(rows)


def check_items(arena: Arena, upload: Upload) -> None:
    """Every file has one row, ended as its number says, with one effect if it completed with one."""
    effects: dict[str, list[int]] = defaultdict(list)
    for job_id, attempt in arena.backend.rows("select job_id, attempt from ledger"):
        effects[str(job_id)].append(attempt)
    numbers = {key_of(number): number for number in range(upload.files)}
    rows = arena.backend.rows(
        " union all ".join(f"select {ITEM} from {table} where batch_id is not null" for table in TABLES)
    )
    items = [StoredFile(numbers[key], str(job_id), *rest) for job_id, key, *rest in rows]
    assert len(items) == upload.files
    assert {item.number for item in items} == set(numbers.values())
    assert [item for item in items if not item.is_as_expected(upload.files, effects.pop(item.id, []))] == []
    assert sum(item.crashes for item in items) > 0, "no kill hit a running item"
    assert len(effects) == 2  # of the two jobs that followed


class StoredFile(NamedTuple):
    """An item's row at the end."""

    number: int
    id: str
    state: str
    attempts: int
    failures: int
    crashes: int

    def is_as_expected(self, files: int, effects: list[int]) -> bool:
        """Whether it ended as its number says; one that was hit by three kills is parked, as promised."""
        if self.crashes == CRASHES_ALLOWED:
            return (self.state, effects) == ("dead_letter", [])
        if is_broken(self.number, files):
            return (self.state, effects) == ("failed", [])
        failures = 1 if is_late(self.number) else 0
        expected = [self.attempts] if has_effect(self.number) else []
        return (self.state, self.failures, effects) == ("completed", failures, expected)


def check_ending(arena: Arena) -> None:
    """The completion job and the gate's have completed, each with one effect."""
    rows = arena.backend.rows(
        "select task_name, state, id from stagepost_job_history where task_name <> 'transfer_file' order by task_name"
    )
    assert [tuple(row[:2]) for row in rows] == [("transfer_completed", "completed"), ("transfer_opened", "completed")]
    for *_, job_id in rows:
        assert len(arena.backend.rows("select attempt from ledger where job_id = :id", id=str(job_id))) == 1
