"""The private servers themselves: they recover from every fault and leave nothing behind."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pymysql
import pytest

from tests.fault.servers import PrivateMariaDB, PrivatePostgres, StopMode
from tests.services import mariadb
from tests.services.processes import wait_until

OWNER_PROGRAM = """
import sys
from tests.fault.servers import PrivatePostgres
server = PrivatePostgres()
server.start()
print(server.pid, server.directory, flush=True)
sys.stdin.read()
"""


def write_note(server: PrivatePostgres) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute("create table note (text text)")
        connection.execute("insert into note values ('kept')")


def read_note(server: PrivatePostgres) -> str:
    with psycopg.connect(server.url) as connection:
        [(text,)] = connection.execute("select text from note")
    return str(text)


@pytest.mark.parametrize("mode", ["smart", "fast", "immediate"])
@pytest.mark.prove
def test_postgres_keeps_its_rows_through_every_way_of_stopping(
    private_postgres: PrivatePostgres, mode: StopMode
) -> None:
    write_note(private_postgres)

    private_postgres.stop(mode)
    assert not private_postgres.accepts_connections()
    private_postgres.start()

    assert read_note(private_postgres) == "kept"


@pytest.mark.prove
def test_postgres_recovers_from_kills(private_postgres: PrivatePostgres) -> None:
    write_note(private_postgres)

    private_postgres.kill_postmaster()
    private_postgres.start()
    assert read_note(private_postgres) == "kept"

    private_postgres.restart_immediate()
    assert read_note(private_postgres) == "kept"

    with contextlib.closing(psycopg.connect(private_postgres.url)) as victim:
        private_postgres.kill_backend(victim.info.backend_pid)
    assert read_note(private_postgres) == "kept"


def test_postgres_ends_one_session_and_leaves_the_others(private_postgres: PrivatePostgres) -> None:
    with (
        contextlib.closing(psycopg.connect(private_postgres.url)) as victim,
        psycopg.connect(private_postgres.url) as other,
    ):
        private_postgres.terminate_backend(victim.info.backend_pid)

        with pytest.raises(psycopg.OperationalError):
            victim.execute("select 1")
        assert other.execute("select 1").fetchone() == (1,)


def test_a_stranger_is_not_killed_as_a_backend(private_postgres: PrivatePostgres) -> None:
    with pytest.raises(LookupError, match="is no backend"):
        private_postgres.kill_backend(psutil.Process().pid)


@pytest.mark.prove
def test_a_paused_postgres_hangs_and_goes_on_when_resumed(private_postgres: PrivatePostgres) -> None:
    write_note(private_postgres)

    private_postgres.pause()
    # A session that had just ended is a zombie, since its parent cannot take notice of it.
    statuses = {process.status() for process in private_postgres.tree()}
    assert statuses <= {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
    with pytest.raises(psycopg.errors.ConnectionTimeout):
        psycopg.connect(private_postgres.url, connect_timeout=2)
    private_postgres.resume()

    assert read_note(private_postgres) == "kept"


@pytest.mark.prove
def test_a_paused_server_can_be_closed(private_postgres: PrivatePostgres) -> None:
    pid = private_postgres.pid
    private_postgres.pause()

    private_postgres.close()

    assert not psutil.pid_exists(pid)
    assert not private_postgres.directory.exists()


@pytest.mark.prove
def test_mariadb_recovers_from_a_kill_and_a_restart(private_mariadb: PrivateMariaDB) -> None:
    def notes() -> tuple[tuple[object, ...], ...]:
        with contextlib.closing(mariadb.connect(private_mariadb.url)) as connection:
            cursor = connection.cursor()
            cursor.execute("select text from test.note")
            return cursor.fetchall()

    with contextlib.closing(mariadb.connect(private_mariadb.url)) as connection:
        cursor = connection.cursor()
        cursor.execute("create database test")
        cursor.execute("create table test.note (text text)")
        cursor.execute("insert into test.note values ('kept')")

    private_mariadb.restart_killed()
    assert notes() == (("kept",),)
    private_mariadb.restart()
    assert notes() == (("kept",),)


@pytest.mark.prove
def test_mariadb_ends_one_session(private_mariadb: PrivateMariaDB) -> None:
    victim = mariadb.connect(private_mariadb.url)
    cursor = victim.cursor()
    cursor.execute("select connection_id()")
    [(connection_id,)] = cursor.fetchall()

    private_mariadb.terminate_connection(connection_id)

    with pytest.raises(pymysql.OperationalError):
        victim.query("select 1")


@pytest.mark.prove
def test_a_paused_mariadb_hangs_and_goes_on_when_resumed(private_mariadb: PrivateMariaDB) -> None:
    private_mariadb.pause()
    assert not private_mariadb.is_ready()
    private_mariadb.resume()

    wait_until(private_mariadb.is_ready, "MariaDB to go on", seconds=60)


@pytest.mark.usefixtures("private_postgres")  # skips where PostgreSQL is not installed
def test_a_server_goes_when_its_test_process_is_killed(pytestconfig: pytest.Config) -> None:
    command = [sys.executable, "-c", OWNER_PROGRAM]
    root = pytestconfig.rootpath
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().decode().split()
        assert psutil.pid_exists(int(pid))

        owner.kill()

    wait_until(lambda: not Path(directory).exists(), "the leash to remove the directory", seconds=120)
    assert not psutil.pid_exists(int(pid))
