"""The database answers, and every setting that could lose committed work is reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stagepost.clock import SystemClock
from stagepost.database import Store
from stagepost.database.statement import Statement, Statements, operation
from stagepost.model.job import to_datetime
from stagepost.store.health import durability_warnings, network_file_system, ping, warnings_of
from tests.conformance.bench import Bench, DatabaseOnBench

FOR_SPEED = ("fsync", "full_page_writes", "innodb_", "sync_binlog", "synchronous_commit")
"""What a server that only serves tests may have been set to."""


def test_ping_gives_the_time_of_the_clock_in_use(store: Bench) -> None:
    assert store.run(ping()) == store.now


def test_ping_gives_the_databases_own_time(blocking_store: Bench) -> None:
    own = blocking_store.database.store
    own.clock = SystemClock()

    first, second = own.run(ping()), own.run(ping())

    assert first <= second
    assert to_datetime(first).year >= 2026


def test_the_settings_that_matter_are_read(store: Bench) -> None:
    expected = {
        "sqlite": {"synchronous", "journal_mode", "file"},
        "postgres": {"fsync", "full_page_writes", "synchronous_commit", "pg_is_in_recovery"},
        "mysql": {"innodb_flush_log_at_trx_commit", "innodb_doublewrite", "log_bin", "sync_binlog"},
    }[store.dialect.name]

    @operation
    def settings() -> Statements[set[str]]:
        rows = yield Statement("durability_settings")
        return {name for name, _ in rows}

    assert expected <= store.run(settings())


def test_a_database_as_we_open_it_gives_no_warning(blocking_store: Bench) -> None:
    warnings = blocking_store.run(durability_warnings())

    assert [warning for warning in warnings if not warning.startswith(FOR_SPEED)] == []


def test_a_session_that_confirms_too_early_is_noticed(database_on_bench: Callable[[str], DatabaseOnBench]) -> None:
    store = database_on_bench("postgres").store

    with store.transaction() as connection:
        connection.execute("set local synchronous_commit = off", {})
        warnings = store.drive(durability_warnings(), connection)

    [warning] = [warning for warning in warnings if warning.startswith("synchronous_commit")]
    assert "is off" in warning
    assert "a crash of the server loses" in warning
    assert "synchronous_commit = on" in warning


@pytest.mark.parametrize(
    ("name", "weaken", "mend", "named"),
    [
        (
            "postgres",
            "alter table stagepost_rate set unlogged",
            "alter table stagepost_rate set logged",
            "stagepost_rate (unlogged)",
        ),
        (
            "mariadb",
            "create table stagepost_volatile (name varchar(9)) engine=myisam",
            "drop table stagepost_volatile",
            "stagepost_volatile (MyISAM)",
        ),
    ],
)
def test_tables_that_a_crash_would_empty_are_noticed(
    database_on_bench: Callable[[str], DatabaseOnBench], name: str, weaken: str, mend: str, named: str
) -> None:
    store = database_on_bench(name).store

    with store.transaction() as connection:
        connection.execute(weaken, {})
        warnings: list[str] = store.drive(durability_warnings(), connection)
        connection.execute(mend, {})

    [warning] = [warning for warning in warnings if not warning.startswith(FOR_SPEED)]
    assert warning.startswith(named)


def test_a_weak_sqlite_connection_is_noticed(tmp_path: Path) -> None:
    store = Store.at(f"sqlite:///{tmp_path}/weak.db")
    with store.pool.connection() as loan:
        loan.connection.execute("pragma synchronous = normal", {})
        loan.connection.execute("pragma journal_mode = delete", {})
        loan.is_sound = True

    warnings = store.run(durability_warnings())

    assert [warning.partition(":")[0] for warning in warnings] == ["synchronous is 1", "journal_mode is delete"]
    store.close()


def test_a_database_in_memory_is_noticed() -> None:
    store = Store.at("sqlite://")

    [warning] = store.run(durability_warnings())

    assert "in memory" in warning
    store.close()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"innodb_flush_log_at_trx_commit": "2"}, ["innodb_flush_log_at_trx_commit is 2"]),
        ({"innodb_flush_log_at_trx_commit": "3", "innodb_doublewrite": "on"}, []),
        ({"innodb_doublewrite": "off"}, ["innodb_doublewrite is off"]),
        ({"log_bin": "on", "sync_binlog": "0"}, ["sync_binlog is 0"]),
        ({"log_bin": "off", "sync_binlog": "0"}, []),
        ({"wsrep_on": "on"}, ["wsrep_on is on"]),
        ({"fsync": "off", "full_page_writes": "off"}, ["fsync is off", "full_page_writes is off"]),
        ({"pg_is_in_recovery": "true"}, ["pg_is_in_recovery is true"]),
        ({"synchronous_commit": "remote_apply"}, []),
    ],
)
def test_a_warning_names_the_setting_and_its_value(settings: dict[str, str], named: list[str]) -> None:
    assert [warning.partition(":")[0] for warning in warnings_of(settings)] == named


def test_a_file_on_a_network_file_system_is_noticed(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/share {tmp_path}/far nfs4 rw 0 0\n")

    def file_system(path: str) -> str | None:
        return network_file_system(path, mounts=mounts)

    [warning] = warnings_of({"file": f"{tmp_path}/far/jobs.db"}, file_system=file_system)

    assert "network file system (nfs4)" in warning
    assert warnings_of({"file": f"{tmp_path}/near/jobs.db"}, file_system=file_system) == []
    assert warnings_of({"file": f"{tmp_path}/farther/jobs.db"}, file_system=file_system) == []
