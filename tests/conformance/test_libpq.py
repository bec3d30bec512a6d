"""Statements that go to PostgreSQL below the driver's cursors: what those would have looked after."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from stagepost.store.libpq import MOST_PREPARED, PREPARE_FROM, Session
from stagepost.store.trouble import Trouble, postgres_trouble
from tests.conformance.bench import Bench
from tests.services.processes import wait_until

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)
PREPARED = "select name, statement from pg_prepared_statements where name like 'stagepost%'"


@pytest.fixture
def raw(blocking_store: Bench) -> Iterator[Any]:
    connection = blocking_store.database.store.database.connect()
    yield connection.raw
    connection.close()


def test_values_come_back_as_they_went(raw: Any) -> None:
    given = ["", "x'\\\n€", "7", -(2**63), 2.5, None]

    [row] = Session(raw, prepares=True).execute(
        "select $1::text, $2::text, $3::integer, $4::bigint, $5::double precision, $6::text", given
    )

    assert row == ("", "x'\\\n€", 7, -(2**63), 2.5, None)


@pytest.mark.parametrize("value", [b"bytes", True, {"a": 1}])
def test_what_has_no_plain_text_is_refused(raw: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="text, numbers and null"):
        Session(raw, prepares=True).execute("select $1::text", [value])


def test_text_that_would_be_cut_is_refused(raw: Any) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        Session(raw, prepares=True).execute("select $1::text", ["a\0b"])


def test_a_statement_is_prepared_once_it_is_used_again_and_again(raw: Any) -> None:
    session = Session(raw, prepares=True)

    for number in range(PREPARE_FROM + 3):
        assert raw.execute(PREPARED).fetchall() == (
            [] if number < PREPARE_FROM else [("stagepost_0", "select $1::text")]
        )
        assert session.execute("select $1::text", [str(number)]) == [(str(number),)]


def test_no_session_prepares_without_end(raw: Any) -> None:
    session = Session(raw, prepares=True)

    for number in range(MOST_PREPARED + 5):
        for _ in range(PREPARE_FROM):
            assert session.execute(f"select {number}", ()) == [(number,)]

    assert len(raw.execute(PREPARED).fetchall()) == MOST_PREPARED


def test_behind_a_pooler_nothing_is_prepared(raw: Any) -> None:
    session = Session(raw, prepares=False)

    for number in range(PREPARE_FROM + 3):
        session.execute("select $1::integer", [number])

    assert raw.execute(PREPARED).fetchall() == []


def test_an_error_has_its_code_and_the_session_goes_on(raw: Any) -> None:
    session = Session(raw, prepares=True)

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


def test_a_connection_that_is_gone_is_told_from_a_mistake(raw: Any, blocking_store: Bench) -> None:
    session = Session(raw, prepares=True)
    blocking_store.rows("select pg_terminate_backend(:pid)", pid=raw.info.backend_pid)

    for _ in range(2):
        with pytest.raises(psycopg.Error) as caught:
            session.execute("select 1", ())
        assert postgres_trouble(caught.value) is Trouble.CONNECTION


def test_who_waits_for_an_answer_can_be_interrupted(raw: Any, blocking_store: Bench) -> None:
    session = Session(raw, prepares=True)
    waiting = "select count(*) from pg_stat_activity where pid = :pid and wait_event = 'PgSleep'"
    pid = raw.info.backend_pid

    def interrupt() -> None:
        wait_until(lambda: blocking_store.rows(waiting, pid=pid) == [(1,)], "a statement that waits", seconds=60)
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
