"""How services are found, and that a run cleans up after itself and after dead runs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests.services import debian, mariadb, redis
from tests.services.__main__ import main, report
from tests.services.fixtures import USED, give_up_on
from tests.services.locate import Programs, Service, ServiceUnusable, Source, locate, open_server
from tests.services.mariadb import MariadbServer
from tests.services.names import fresh_name, is_stale
from tests.services.postgres import PostgresServer
from tests.services.processes import find_program
from tests.services.redis import RedisInstance, RedisServer
from tests.services.server import database_in, with_database

NOWHERE = "redis://127.0.0.1:1/0"


class NotInstalled(RedisInstance):
    """Redis on a machine without it."""

    @classmethod
    def missing_program(cls) -> str | None:
        return "redis-server"


class Installed(RedisInstance):
    """Redis on a machine with it."""

    @classmethod
    def missing_program(cls) -> str | None:
        return None


def redis_with(instance: type[RedisInstance]) -> Service[RedisServer]:
    """Redis on a machine where none is running."""
    return Service("redis", RedisServer, instance, lambda: [NOWHERE], redis.refusal, ("redis-server",))


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    used = pytestconfig.stash[USED]
    monkeypatch.setitem(used, "redis", "")  # what is tried here is not part of the report
    for name in ("CI", "STAGEPOST_TEST_REDIS_URL", "STAGEPOST_TEST_NO_INSTALL"):
        monkeypatch.delenv(name, raising=False)


def name_of_a_dead_run() -> str:
    program = "from tests.services.names import fresh_name; print(fresh_name())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_name_is_stale_when_its_process_is_gone() -> None:
    assert is_stale(name_of_a_dead_run())
    assert not is_stale(fresh_name())


def test_names_of_other_hosts_and_other_people_are_never_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = name_of_a_dead_run()
    monkeypatch.setattr("socket.gethostname", lambda: "another host")

    assert not is_stale(foreign)
    assert not is_stale("production")
    assert not is_stale(f"{foreign}_and_more")


def test_an_address_in_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service("redis", RedisServer, Installed, lambda: [NOWHERE], lambda _: None, ())
    monkeypatch.setenv("STAGEPOST_TEST_REDIS_URL", "redis://example:6380/0")

    location = locate(service)

    assert (location.source, location.url) == (Source.ENVIRONMENT, "redis://example:6380/0")


def test_an_unusable_address_in_the_environment_is_no_reason_to_fall_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STAGEPOST_TEST_REDIS_URL", NOWHERE)

    with pytest.raises(ServiceUnusable, match="STAGEPOST_TEST_REDIS_URL is set but unusable"):
        locate(redis_with(Installed))


def test_a_running_server_comes_before_a_private_one() -> None:
    service = Service("redis", RedisServer, Installed, lambda: [NOWHERE], lambda _: None, ())

    assert locate(service).source is Source.RUNNING


def test_installed_programs_come_last() -> None:
    assert locate(redis_with(Installed)).source is Source.PRIVATE
    assert locate(redis_with(NotInstalled)).source is Source.MISSING


def test_a_missing_service_is_a_loud_skip_on_a_laptop(
    capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    assert report(redis_with(NotInstalled), may_install=False)

    said = capsys.readouterr().err
    assert "SKIPPED" in said
    assert "apt-get install" in said
    with pytest.raises(pytest.skip.Exception, match="apt-get install"):
        give_up_on(redis_with(NotInstalled), "not there", pytestconfig)


def test_a_missing_service_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.setenv("CI", "true")

    assert not report(redis_with(NotInstalled), may_install=False)
    with pytest.raises(pytest.fail.Exception, match="CI=true"):
        give_up_on(redis_with(NotInstalled), "not there", pytestconfig)


def test_missing_programs_are_a_loud_skip_and_installed_like_servers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(debian, "can_install", lambda: True)
    monkeypatch.setattr(debian, "install", installed.append)
    nowhere = Programs("checker", ("sh", "no-such-checker"), ("checker", "compiler"))

    assert report(nowhere, may_install=False)
    assert installed == []
    assert report(nowhere, may_install=True)
    assert installed == [("checker", "compiler")]
    said = capsys.readouterr().err
    assert "SKIPPED: no-such-checker not installed" in said
    assert "apt-get install --no-install-recommends -y checker compiler" in said
    assert locate(Programs("shell", ("sh",), ())).source is Source.INSTALLED


def test_packages_are_installed_only_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(debian, "can_install", lambda: True)
    monkeypatch.setattr(debian, "install", installed.append)

    report(redis_with(NotInstalled), may_install=False)
    assert installed == []
    report(redis_with(Installed), may_install=True)
    assert installed == []
    report(redis_with(NotInstalled), may_install=True)
    assert installed == [("redis-server",)]


def test_no_daemon_starts_during_an_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    exit_codes: set[int] = set()

    def apt_get(*arguments: str) -> subprocess.CompletedProcess[str]:
        exit_codes.add(subprocess.run([policy], check=False).returncode)
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr(debian, "START_POLICY", policy)
    monkeypatch.setattr(debian, "_apt_get", apt_get)

    assert debian.install(["anything"]) is None
    assert exit_codes == {101}
    assert not policy.exists()


def test_an_unknown_service_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["oracle"])

    assert "no such service: oracle" in capsys.readouterr().err


def test_a_private_server_is_gone_after_closing() -> None:
    if find_program("redis-server") is None:
        pytest.skip("redis-server is not installed")
    service = redis_with(Installed)
    server = open_server(service, locate(service))
    with server.database() as url:
        assert database_in(url) != "0"

    server.close()

    assert redis.refusal(server.url) is not None


def test_a_postgres_database_is_empty_and_then_gone(postgres_server: PostgresServer) -> None:
    with postgres_server.database() as url, psycopg.connect(url) as connection:
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone()

    assert tables == (0,)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_postgres_databases_of_dead_runs_are_swept(postgres_server: PostgresServer) -> None:
    name = name_of_a_dead_run()
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())

    PostgresServer(postgres_server.url, origin="a later run")

    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(with_database(postgres_server.url, name))


def test_mariadb_databases_of_dead_runs_are_swept(mariadb_server: MariadbServer) -> None:
    name = name_of_a_dead_run()
    with contextlib.closing(mariadb.connect(mariadb_server.url)) as connection:
        connection.cursor().execute(f"create database {name}")

    MariadbServer(mariadb_server.url, origin="a later run")

    with pytest.raises(pymysql.OperationalError, match="Unknown database"):
        mariadb.connect(with_database(mariadb_server.url, name))


def test_a_mariadb_database_is_dropped_under_an_open_transaction(mariadb_server: MariadbServer) -> None:
    url = mariadb_server.fresh_database()
    with contextlib.closing(mariadb.connect(url)) as blocker:
        blocker.cursor().execute("create table note (text text)")
        blocker.begin()
        blocker.cursor().execute("insert into note values ('held')")

        mariadb_server.drop_database(url)

    with pytest.raises(pymysql.OperationalError, match="Unknown database"):
        mariadb.connect(url)
