"""The fixture `store`: every test that asks for it runs on each database, in each colour."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from stagepost.database.async_store import AsyncStore
from stagepost.loops.signals import Signals
from stagepost.upkeep.leader import Leader
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.callers import Kind
from tests.conformance.counts import counted, kept
from tests.conformance.ran import start_recording, stop_recording
from tests.depth import DATABASES

BENCHES = (
    "sqlite-sync",
    "postgres-sync",
    "mariadb-sync",
    *(
        pytest.param(name, marks=pytest.mark.prove)
        for name in ("sqlite-async", "postgres-async", "postgres-asyncpg", "mariadb-async")
    ),
)
"""Operations are the same in each colour; the runners, which differ, are tested in `test_transactions.py`."""


@pytest.fixture(scope="session", autouse=True)
def statements_recorded() -> Iterator[None]:
    """Records which statements ran, for the test that demands all of them."""
    start_recording()
    yield
    stop_recording()


@pytest.fixture(scope="session")
def database_on_bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], DatabaseOnBench]]:
    """Creates each of the databases when it is first used."""
    made: dict[str, DatabaseOnBench] = {}

    def make(name: str) -> DatabaseOnBench:
        if name not in made:
            if name == "sqlite":
                url = f"sqlite:///{tmp_path_factory.mktemp('conformance')}/stagepost.db"
            else:
                url = request.getfixturevalue(f"{name}_server").fresh_database()
            made[name] = DatabaseOnBench(url)
        return made[name]

    yield make
    for database in made.values():
        database.close()


@pytest.fixture(scope="session", params=DATABASES)
def database(request: pytest.FixtureRequest, database_on_bench: Callable[[str], DatabaseOnBench]) -> DatabaseOnBench:
    return database_on_bench(request.param)


@pytest.fixture(scope="session", params=BENCHES)
def bench(request: pytest.FixtureRequest, database_on_bench: Callable[[str], DatabaseOnBench]) -> Bench:
    database, colour = request.param.split("-")
    return Bench(database_on_bench(database), Colour(colour))


@pytest.fixture
def store(bench: Bench) -> Iterator[Bench]:
    """An empty store, once for each database and colour. After every test, the counts must equal the rows."""
    bench.database.empty()
    store = Bench(bench.database, bench.colour)
    yield store
    check(store)


@pytest.fixture
def blocking_store(database: DatabaseOnBench) -> Iterator[Bench]:
    """As `store`, in the blocking colour only: for races between threads and for plans of statements."""
    database.empty()
    store = Bench(database, Colour.SYNC)
    yield store
    check(store)


@pytest.fixture
def own_store(blocking_store: Bench) -> Iterator[AsyncStore]:
    """The store that upkeep loops use."""
    store = AsyncStore(blocking_store.database.store)
    yield store
    store.close()


@pytest.fixture
def leader(own_store: AsyncStore, blocking_store: Bench) -> Leader:
    """A leader for upkeep loops."""
    leader = Leader(own_store, Signals(), owner="worker-a", clock=blocking_store.clock)
    assert asyncio.run(leader.run_once())
    return leader


def check(store: Bench) -> None:
    """Check the invariants that hold after every test."""
    assert kept(store) == counted(store)
    assert store.rows("select id, state from stagepost_job where sent_at is not null and state <> 'queued'") == []
    if store.dialect.name == "mysql":
        keys = store.rows("select unique_key, job_id from stagepost_live_key")
        held = store.rows("select unique_key, id from stagepost_job where unique_key is not null")
        assert sorted(keys) == sorted(held), "the keys in stagepost_live_key are those of the live jobs"


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def callers_store(kind: Kind, database_on_bench: Callable[[str], DatabaseOnBench]) -> Iterator[Bench]:
    """The kind's database, seen from outside the caller's transaction. In the end, the counts must equal the rows."""
    database = database_on_bench(kind.database)
    store = Bench(database, Colour.SYNC)
    store.rows("create table if not exists caller_note (note varchar(100))")
    store.rows("delete from caller_note")
    database.empty()
    yield store
    check(store)
