"""Statements that go to PostgreSQL below the driver's cursors: what those would have looked after."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from stagepost.database.adapters.postgres import open_psycopg
from stagepost.database.connection import PostgresConnection
from stagepost.database.dialect import ParameterStyle
from stagepost.database.libpq import MOST_PREPARED, PREPARE_FROM, Session
from stagepost.database.statement import Rows
from stagepost.database.trouble import Trouble, postgres_trouble
from tests.conformance.bench import Bench
from tests.services.processes import wait_until

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)
WAITING = "select count(*) from pg_stat_activity where pid = :pid and wait_event = 'PgSleep'"
PREPARED = "select name, statement from pg_prepared_statements where name like 'stagepost%'"


@pytest.fixture
def raw(blocking_store: Bench) -> Iterator[Any]:
    connection = blocking_store.database.store.database.connect()
    yield connection.raw
    connection.close()


class Elsewhere(Session):
    """Asked from a thread that no signal reaches, and that leaves the waiting to libpq."""

    def execute(self, sql: str, parameters: Iterable[Any] | None) -> Rows:
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(super().execute, sql, parameters).result()

    def command(self, sql: str) -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(super().command, sql).result()


@pytest.fixture(params=[Session, Elsewhere], ids=["main thread", "other thread"])
def session(request: pytest.FixtureRequest, raw: Any) -> Session:
    made: Session = request.param(raw, prepares=True)
    return made


def test_values_are_read_back_unchanged(session: Session) -> None:
    given = ["", "x'\\\n€", "7", -(2**63), 2.5, None]

    [row] = session.execute("select $1::text, $2::text, $3::integer, $4::bigint, $5::double precision, $6::text", given)

    assert row == ("", "x'\\\n€", 7, -(2**63), 2.5, None)


@pytest.mark.parametrize("value", [b"bytes", True, {"a": 1}])
def test_values_without_a_text_form_are_refused(session: Session, value: Any) -> None:
    with pytest.raises(TypeError, match="text, numbers and null"):
        session.execute("select $1::text", [value])


def test_text_that_would_be_cut_is_refused(session: Session) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        session.execute("select $1::text", ["a\0b"])


def test_a_statement_is_prepared_after_repeated_use(raw: Any, session: Session) -> None:
    for number in range(PREPARE_FROM + 3):
        assert raw.execute(PREPARED).fetchall() == (
            [] if number < PREPARE_FROM else [("stagepost_0", "select $1::text")]
        )
        assert session.execute("select $1::text", [str(number)]) == [(str(number),)]


def test_a_session_prepares_a_limited_number_of_statements(raw: Any, session: Session) -> None:
    for number in range(MOST_PREPARED + 5):
        for _ in range(PREPARE_FROM):
            assert session.execute(f"select {number}", ()) == [(number,)]

    assert len(raw.execute(PREPARED).fetchall()) == MOST_PREPARED


def test_behind_a_pooler_nothing_is_prepared(raw: Any) -> None:
    session = Session(raw, prepares=False)

    for number in range(PREPARE_FROM + 3):
        session.execute("select $1::integer", [number])

    assert raw.execute(PREPARED).fetchall() == []


def test_an_error_has_its_code_and_the_session_goes_on(session: Session) -> None:
    for sql, error in (
        ("select 1 / $1::integer", psycopg.errors.DivisionByZero),
        ("selec $1", psycopg.errors.SyntaxError),
    ):
        for _ in range(PREPARE_FROM + 1):
            with pytest.raises(error):
                session.execute(sql, [0])
    with pytest.raises(psycopg.errors.UndefinedTable):
        session.command("begin; select * from nowhere")
    session.command("rollback")

    assert session.execute("select 1", ()) == [(1,)]


def test_a_lost_connection_is_distinguished_from_an_error(raw: Any, session: Session, blocking_store: Bench) -> None:
    blocking_store.rows("select pg_terminate_backend(:pid)", pid=raw.info.backend_pid)

    for _ in range(2):
        with pytest.raises(psycopg.Error) as caught:
            session.execute("select 1", ())
        assert postgres_trouble(caught.value) is Trouble.CONNECTION


@pytest.mark.parametrize("way", ["the server ends it", "its deadline passes"])
def test_a_connection_that_ends_while_an_answer_is_awaited_is_gone(
    raw: Any, session: Session, blocking_store: Bench, way: str
) -> None:
    pid = raw.info.backend_pid

    def end() -> None:
        wait_until(lambda: blocking_store.rows(WAITING, pid=pid) == [(1,)], "a statement that waits", seconds=60)
        if way == "its deadline passes":
            PostgresConnection(raw).abort()
        blocking_store.rows("select pg_terminate_backend(:pid)", pid=pid)

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(psycopg.Error) as caught:
        session.execute("select pg_sleep(600)", ())
    thread.join()

    assert postgres_trouble(caught.value) is Trouble.CONNECTION


def test_a_lent_connection_is_spoken_to_below_its_cursors_but_not_in_a_pipeline(raw: Any, session: Session) -> None:
    session.command("begin")

    assert open_psycopg(raw).style is ParameterStyle.DOLLAR
    with raw.pipeline():
        assert open_psycopg(raw).style is ParameterStyle.PYFORMAT
    session.command("rollback")


def test_waiting_for_an_answer_can_be_interrupted(raw: Any, blocking_store: Bench) -> None:
    session = Session(raw, prepares=True)
    pid = raw.info.backend_pid

    def interrupt() -> None:
        wait_until(lambda: blocking_store.rows(WAITING, pid=pid) == [(1,)], "a statement that waits", seconds=60)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # programs in the background may ignore it
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            session.execute("select pg_sleep(600)", ())
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    blocking_store.rows("select pg_terminate_backend(:pid)", pid=pid)
