"""F10, F30, F35: no CPU time, too few connections, and a full disk."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest

from stagepost.database import Store
from stagepost.errors import StoreUnavailable
from stagepost.store.jobs import enqueue_many
from tests.depth import quickly_on
from tests.fault.arena import LASTING_LEASE, Arena, jobs_of
from tests.fault.backends import NAMES, Backend, opened, sqlite_url
from tests.fault.nursery import Nursery
from tests.fault.servers import PrivatePostgres
from tests.services.fixtures import give_up_on
from tests.services.locate import POSTGRES, missing_is_failure

FEW = 12
RESERVED = {"max_connections": str(FEW), "superuser_reserved_connections": "1", "fsync": "off"}
DISK, FILLER = 12_000_000, 6_000_000
"""SQLite's journal alone grows to four million bytes before it is emptied."""
HOG = """
import contextlib, os, sys
with contextlib.suppress(PermissionError):
    os.nice(int(sys.argv[1]))
while True:
    pass
"""
LASTING = [pytest.mark.nightly, pytest.mark.timeout(600)]
SPINNERS = 4
"""Handlers in one worker that compute without a pause."""
LONG = '{"trace_id": "' + "x" * 20_000 + '"}'


@pytest.mark.parametrize(
    ("backend", "lease", "niceness"),
    [("postgres", 9, 0), *(pytest.param(name, 30, -5, marks=LASTING) for name in NAMES)],
    indirect=["backend"],
)
@pytest.mark.prove
def test_a_worker_without_a_processor_to_itself_keeps_its_leases(arena: Arena, lease: int, niceness: int) -> None:
    """F10: other processes use every core, and the worker's own handlers the interpreter, for two leases."""
    jobs = arena.enqueue("transfer_spinning", SPINNERS, seconds=2 * lease)
    arena.start_worker(lease_seconds=lease, prefetch=0)
    arena.wait(lambda: len(arena.notes("start")) == len(jobs), "all to start")
    arena.start_worker(lease_seconds=lease, tasks=["note"])  # it would rescue them

    with arena.sampling(), busy_machine(niceness):
        arena.wait_for_end(jobs, seconds=4 * lease + 60)

    evidence = arena.verify()
    assert {(job.attempt, job.crashes, job.state) for job in evidence.jobs.values()} == {(1, 0, "completed")}


@contextlib.contextmanager
def busy_machine(niceness: int) -> Iterator[None]:
    """Two processes per core that never pause; a negative niceness puts them before others, where that is allowed."""
    command = [sys.executable, "-c", HOG, str(niceness)]
    hogs = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
        assert [hog.poll() for hog in hogs] == [None] * len(hogs)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@pytest.mark.parametrize("size", [1, 2])
@quickly_on("postgres")
def test_a_worker_can_work_with_a_pool_of_one_or_two(arena: Arena, size: int) -> None:
    """F30."""
    jobs = arena.enqueue("transfer", 60, seconds=0.01) + arena.enqueue("transfer_flaky", 20) + arena.enqueue("note", 60)

    worker = arena.start_worker(pool_size=size, concurrency=10, lease_seconds=LASTING_LEASE)
    arena.wait_for_end(jobs)

    evidence = arena.verify()
    assert {job.crashes for job in evidence.jobs.values()} == {0}
    assert worker.status is None


def test_a_server_without_free_connections_only_delays_work(
    nursery: Nursery, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """F30."""
    if missing := PrivatePostgres.missing_program():
        give_up_on(POSTGRES, f"a private instance needs {missing}", pytestconfig)
    with PrivatePostgres(RESERVED) as server:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("create role clerk login superuser")
            admin.execute("alter role clerk nosuperuser")
            admin.execute("grant all on schema public to clerk")
        url = server.url.replace("postgres@", "clerk@")
        with opened("postgres", url) as backend:
            arena = Arena(backend, nursery, tmp_path)
            worker = arena.start_worker(pool_size=2)
            arena.wait_for_end(arena.enqueue("transfer", 5))

            with contextlib.ExitStack() as taken:
                arena.wait(lambda: has_taken_all(backend, taken), "the worker to be without a connection")
            jobs = arena.enqueue("transfer", 20) + arena.enqueue("note", 20)
            arena.wait_for_end(jobs)

            assert worker.status is None
            arena.verify(grace_us=10_000_000)
            nursery.kill_all()


def has_taken_all(backend: Backend, taken: contextlib.ExitStack) -> bool:
    """Open connections until the server refuses, and end the worker's; True if it had none any more."""
    with contextlib.suppress(psycopg.OperationalError):
        while True:
            taken.enter_context(contextlib.closing(psycopg.connect(backend.url, autocommit=True)))
    sessions = backend.rows("select pid from pg_stat_activity where application_name = 'stagepost'")
    for (session,) in sessions:
        backend.end_session(session)
    return not sessions


@pytest.fixture
def small_disk(tmp_path: Path, nursery: Nursery) -> Iterator[Path]:
    """A file system with little room; only root can make one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        reason = "F35 needs a small file system, which only root may mount: run the tests as root"
        pytest.fail(reason) if missing_is_failure() and os.geteuid() == 0 else pytest.skip(reason)
    yield folder
    nursery.kill_all()
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_a_clear_error_and_work_continues_when_there_is_space(
    small_disk: Path, nursery: Nursery, tmp_path: Path
) -> None:
    """F35."""
    filler = small_disk / "filler"
    filler.write_bytes(bytes(FILLER))
    with opened("sqlite", sqlite_url(small_disk)) as backend:
        arena = Arena(backend, nursery, tmp_path)
        with contextlib.closing(Store.at(backend.url, patience_seconds=0.1)) as store:
            refusal = fill_up(arena, store)
        assert "full" in refusal
        assert backend.rows("pragma integrity_check") == [("ok",)]
        accepted = arena.journal.ids("ok")
        assert accepted <= set(arena.jobs())
        worker = arena.start_worker()
        arena.wait(lambda: "full" in worker.logged(), "the worker to meet the full disk")

        filler.unlink()
        arena.wait_for_end(accepted)

        assert worker.status is None
        arena.verify(grace_us=10_000_000)
        assert backend.rows("pragma integrity_check") == [("ok",)]
        nursery.kill_all()


def fill_up(arena: Arena, store: Store) -> str:
    """Enqueue until the store refuses; returns what it says."""
    for _ in range(1000):
        jobs = [msgspec.structs.replace(job, context=LONG) for job in jobs_of("transfer", 5)]
        arena.journal.ask(job.id for job in jobs)
        try:
            store.run(enqueue_many(jobs))
        except StoreUnavailable as error:
            return str(error)
        arena.journal.confirm(job.id for job in jobs)
    raise AssertionError("the disk was never full")
