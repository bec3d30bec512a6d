"""Readers of events under any order of commits, numbering and reading: none is skipped, repeated or out of order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from stagepost.database import Store
from stagepost.database.connection import Connection
from stagepost.database.migrate import migrate
from stagepost.database.statement import Operation, Statement, Statements, as_json, operation
from stagepost.events import Event
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.store import cancelling, jobs
from stagepost.store.events import number_events, read_events, stream
from stagepost.testing.clock import ManualClock
from tests.conformance.bench import patient_store, tables_of
from tests.depth import quickly_on, sized

WRITERS, JOBS, READERS = 3, 3, 2
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("end"), st.integers(0, WRITERS - 1), st.integers(0, JOBS - 1)),
        st.tuples(st.just("commit"), st.integers(0, WRITERS - 1), st.none()),
        st.tuples(st.just("commit"), st.integers(0, WRITERS - 1), st.none()),
        st.tuples(st.just("roll back"), st.integers(0, WRITERS - 1), st.none()),
        st.tuples(st.just("number"), st.integers(1, 3), st.none()),
        st.tuples(st.just("read"), st.integers(0, READERS - 1), st.integers(1, 3)),
    ),
    min_size=4,
    max_size=30,
)
Happened = tuple[str, int]
"""A job, and when it ended: no two ends happen at the same moment."""
Number = Callable[..., Operation[int]]


@pytest.fixture(scope="module")
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    name = request.param
    folder = tmp_path_factory.mktemp("events")
    url = f"sqlite:///{folder}/stagepost.db"
    if name != "sqlite":
        url = request.getfixturevalue(f"{name}_server").fresh_database()
    with closing(patient_store(url, pool_size=WRITERS + 1)) as store:
        migrate(store)
        yield store


@dataclass
class Writer:
    """A connection whose transaction may stay open for long."""

    connection: Connection
    pending: list[Happened] = field(default_factory=list)
    """Ends that are written, but not committed."""
    holds: set[int] = field(default_factory=set)
    is_open: bool = False


class World:
    """Writers that end a few jobs again and again, and readers that follow the stream."""

    def __init__(self, store: Store, number: Number) -> None:
        self.store, self.number = store, number
        self.clock = store.clock = ManualClock()
        self.job_ids = [new_id() for _ in range(JOBS)]
        store.run(jobs.enqueue_many([NewJob(id=job_id, task_name="t", payload="{}") for job_id in self.job_ids]))
        self.writers = [Writer(store.database.connect()) for _ in range(WRITERS)]
        self.committed: dict[str, list[int]] = defaultdict(list)
        self.seen: list[list[Event]] = [[] for _ in range(READERS)]

    def step(self, what: str, which: int, how: int | None) -> None:
        match what:
            case "end" if how is not None:
                self.end(self.writers[which], how)
            case "commit" | "roll back":
                self.finish(self.writers[which], commits=what == "commit")
            case "number":
                self.store.run(self.number(most=which))
            case "read" if how is not None:
                self.read(which, most=how)

    def end(self, writer: Writer, job: int) -> None:
        """End a job and queue it again, unless that would wait for another writer."""
        others = [other for other in self.writers if other is not writer]
        has_one_writer = not self.store.dialect.has_row_locks
        if any(job in other.holds or (has_one_writer and other.is_open) for other in others):
            return
        if not writer.is_open:
            writer.connection.begin()
            writer.is_open = True
        self.clock.advance(1)
        instant = self.clock.instant()
        assert instant is not None
        job_id = self.job_ids[job]
        self.store.drive(cancelling.cancel_job(job_id, actor="ada"), writer.connection)
        self.store.drive(jobs.restart([job_id], actor="ada"), writer.connection)
        writer.holds.add(job)
        writer.pending.append((job_id, instant))

    def finish(self, writer: Writer, *, commits: bool) -> None:
        if not writer.is_open:
            return
        (writer.connection.commit if commits else writer.connection.rollback)()
        for job_id, instant in writer.pending if commits else ():
            self.committed[job_id].append(instant)
        writer.pending, writer.holds, writer.is_open = [], set(), False

    def read(self, reader: int, *, most: int) -> list[Event]:
        """Continue after the last event seen. On SQLite, numbering would wait for an open writer."""
        is_locked = not self.store.dialect.has_row_locks and any(writer.is_open for writer in self.writers)
        if self.store.run(stream()).is_behind and not is_locked:
            self.store.run(self.number(most=most))
        seen = self.seen[reader]
        page = self.store.run(read_events(after=seen[-1].number if seen else 0, most=most))
        seen += page
        return page

    def check(self) -> None:
        """Let everything be committed and read; every reader has seen exactly what was committed."""
        for writer in self.writers:
            self.finish(writer, commits=True)
        for reader, seen in enumerate(self.seen):
            while self.read(reader, most=3) or self.store.run(stream()).is_behind:
                pass
            numbers = [event.number for event in seen]
            assert numbers == sorted(set(numbers)), "numbers only grow"
            found: dict[str, list[int]] = defaultdict(list)
            for event in seen:
                found[event.job_id].append(round(event.time.timestamp() * 1_000_000))
            assert found == self.committed, "every committed end once, in order per job"

    def close(self) -> None:
        for writer in self.writers:
            writer.connection.close()


def run(store: Store, steps: list[tuple[str, int, Any]], number: Number) -> None:
    """Let a new world take these steps, then check it."""
    with ExitStack() as stack:
        with store.transaction() as connection:
            for table in tables_of(store.dialect):
                if table != "stagepost_migration":
                    connection.execute(f"delete from {table}", {})
        world = stack.enter_context(closing(World(store, number)))
        for step in steps:
            if step[0] == "number" and not store.dialect.has_row_locks and any(w.is_open for w in world.writers):
                continue
            world.step(*step)
        world.check()


@pytest.mark.timeout(600)
@quickly_on("postgres")
def test_readers_see_every_committed_event_once_in_order(backend: Store) -> None:
    @settings(max_examples=sized(25, 300, 3000), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def search(steps: list[tuple[str, int, Any]]) -> None:
        run(backend, steps, number_events)

    search()


@operation
def number_by_id(*, most: int) -> Statements[int]:
    """Let the order of writing be the order of the stream."""
    yield Statement("add_stream")
    rows = yield Statement("unnumbered_events", {"most": most})
    if rows:
        yield Statement("number_events", {"rows": as_json([{"id": row[0], "position": row[0]} for row in rows])})
        yield Statement("move_stream", {"last_position": 1_000_000})
    return len(rows)


@operation
def number_newest_first(*, most: int) -> Statements[int]:
    """Number what is new in the opposite order."""
    yield Statement("add_stream")
    [(last, _)] = yield Statement("lock_stream")
    rows = yield Statement("unnumbered_events", {"most": most})
    numbered = [{"id": row[0], "position": last + at} for at, row in enumerate(reversed(rows), start=1)]
    if rows:
        yield Statement("number_events", {"rows": as_json(numbered)})
        yield Statement("move_stream", {"last_position": last + len(rows)})
    return len(rows)


@quickly_on("postgres", among=("postgres", "mariadb"))
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(number_by_id, id="by-id", marks=pytest.mark.prove),
        pytest.param(number_newest_first, id="newest-first"),
    ],
)
def test_a_broken_order_is_caught(backend: Store, broken: Number) -> None:
    @seed(7)
    @settings(
        max_examples=2000,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(STEPS)
    def search(steps: list[tuple[str, int, Any]]) -> None:
        run(backend, steps, broken)

    with pytest.raises(AssertionError, match="every committed end once"):
        search()
