"""The supervisor with real processes, small ones that do as they are told."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from stagepost.worker.supervisor import Backoff, Supervisor

LIMIT = 60.0
QUICK = Backoff(first=0.01, longest=0.02, forgiven_after=10 * LIMIT)

CHILD = """
import os, signal, socket, sys
notes = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
def note(text):  # at once, without a buffer: a signal may come while one is written
    os.write(notes, f"{os.getpid()} {text}\\n".encode())
def ready():
    parent.sendall(b"ready 0.1\\n"); note("ready")
def on_stop(*_):
    note("told to stop")
    stops.append(1)
    if len(stops) >= needed: os._exit(0)
stops, needed = [], 1
parent = socket.socket(fileno=int(sys.argv[-1]))
signal.signal(signal.SIGTERM, on_stop)
"""
STAYS = "ready()\nwhile True: signal.pause()"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that end slowly not be killed: their machine may be busy."""
    monkeypatch.setattr("stagepost.worker.supervisor.KILL_SECONDS", 10 * LIMIT)
    monkeypatch.setattr("stagepost.worker.supervisor.HURRIED_KILL_SECONDS", 10 * LIMIT)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """What the processes write down."""
    path = tmp_path / "notes"
    path.touch()
    return path


def supervisor(notes: Path, behaviour: str, **options: object) -> Supervisor:
    command = [sys.executable, "-S", "-c", CHILD + behaviour, str(notes)]
    settings: dict[str, object] = {"processes": 2, "backoff": QUICK, **options}
    return Supervisor(command, **settings)  # type: ignore[arg-type]


def pids(notes: Path, what: str) -> list[int]:
    lines = [line.split(" ", 1) for line in notes.read_text(encoding="utf-8").splitlines()]
    return [int(pid) for pid, text in lines if text == what]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - other processes bring it about
            await asyncio.sleep(0.01)


async def ended(running: Awaitable[int]) -> int:
    async with asyncio.timeout(LIMIT):
        return await running


async def test_a_killed_process_is_replaced(notes: Path) -> None:
    keeper = supervisor(notes, STAYS)
    running = asyncio.create_task(keeper.run())
    await until(lambda: len(pids(notes, "ready")) == 2)
    victim = pids(notes, "ready")[0]

    os.kill(victim, signal.SIGKILL)

    await until(lambda: len(pids(notes, "ready")) == 3)
    assert len(keeper.process_ids) == 2
    assert victim not in keeper.process_ids
    keeper.stop()
    assert await ended(running) == 0


async def test_all_processes_are_asked_to_stop_once_and_awaited(notes: Path) -> None:
    keeper = supervisor(notes, STAYS)
    running = asyncio.create_task(keeper.run())
    await until(lambda: len(pids(notes, "ready")) == 2)

    keeper.stop()

    assert await ended(running) == 0
    assert sorted(pids(notes, "told to stop")) == sorted(pids(notes, "ready"))


@pytest.fixture
def _reaped_by_loop() -> Iterator[None]:
    """Let asyncio reap processes on the loop, as it does from Python 3.12 on; before, a thread of its own does."""
    if sys.version_info >= (3, 12):
        yield
        return
    before = asyncio.get_child_watcher()
    asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    yield
    asyncio.set_child_watcher(before)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux 5.3")
@pytest.mark.usefixtures("_reaped_by_loop")
async def test_a_process_that_ends_while_it_is_signalled_keeps_its_exit_code(notes: Path) -> None:
    keeper = supervisor(notes, STAYS, processes=1)
    running = asyncio.create_task(keeper.run())
    await until(lambda: len(pids(notes, "ready")) == 1)
    [process_id] = keeper.process_ids
    os.kill(process_id, signal.SIGTERM)
    os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - so that the loop cannot know yet

    keeper.stop()

    assert await ended(running) == 0


async def test_a_second_request_is_passed_on_and_a_third_kills(notes: Path) -> None:
    keeper = supervisor(notes, "needed = 99\n" + STAYS, processes=1)
    running = asyncio.create_task(keeper.run())
    await until(lambda: len(pids(notes, "ready")) == 1)

    keeper.stop()
    await until(lambda: len(pids(notes, "told to stop")) == 1)
    keeper.stop()
    await until(lambda: len(pids(notes, "told to stop")) == 2)
    keeper.stop()

    assert await ended(running) == 1


async def test_a_process_that_does_not_end_is_killed_after_a_while(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stagepost.worker.supervisor.KILL_SECONDS", 0.1)
    keeper = supervisor(notes, "needed = 99\n" + STAYS, processes=1)
    running = asyncio.create_task(keeper.run())
    await until(lambda: len(pids(notes, "ready")) == 1)

    keeper.stop()

    assert await ended(running) == 1


async def test_a_process_that_does_not_hurry_is_killed_after_a_while(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stagepost.worker.supervisor.HURRIED_KILL_SECONDS", 0.1)
    keeper = supervisor(notes, "needed = 99\n" + STAYS, processes=1)
    running = asyncio.create_task(keeper.run())
    await until(lambda: len(pids(notes, "ready")) == 1)

    keeper.stop()
    keeper.stop()

    assert await ended(running) == 1


async def test_processes_that_keep_dying_before_they_are_ready_end_the_supervisor(notes: Path) -> None:
    keeper = supervisor(notes, "note('started'); sys.exit(3)", processes=1)

    code = await ended(asyncio.create_task(keeper.run()))

    assert code == 3
    assert len(pids(notes, "started")) == 5


@pytest.mark.parametrize("code", [2, 4])
async def test_wrong_usage_or_old_tables_end_the_supervisor_at_once(notes: Path, code: int) -> None:
    keeper = supervisor(notes, f"note('started'); sys.exit({code})", processes=1)

    assert await ended(asyncio.create_task(keeper.run())) == code
    assert len(pids(notes, "started")) == 1


async def test_processes_that_die_of_their_jobs_are_replaced_for_ever(notes: Path) -> None:
    keeper = supervisor(notes, "ready(); os.kill(os.getpid(), signal.SIGSEGV)", processes=1)
    running = asyncio.create_task(keeper.run())

    await until(lambda: len(pids(notes, "ready")) > 7)

    keeper.stop()
    await ended(running)


async def test_one_that_cannot_start_any_more_does_not_stop_the_others(notes: Path) -> None:
    starts_twice = "if len(open(sys.argv[1]).read().split('ready')) > 2: note('refused'); sys.exit(2)\n"
    keeper = supervisor(notes, starts_twice + STAYS)
    running = asyncio.create_task(keeper.run())
    await until(lambda: len(pids(notes, "ready")) == 2)
    victim, other = pids(notes, "ready")

    os.kill(victim, signal.SIGKILL)

    await until(lambda: len(pids(notes, "refused")) > 6)
    assert other in keeper.process_ids
    keeper.stop()
    await ended(running)


async def test_the_others_start_when_the_first_is_ready(notes: Path) -> None:
    keeper = supervisor(notes, "note('started')\nsys.exit(3)", processes=3)

    assert await ended(asyncio.create_task(keeper.run())) == 3
    assert len(pids(notes, "started")) == 5


async def test_processes_that_are_done_are_not_replaced(notes: Path) -> None:
    keeper = supervisor(notes, "ready(); sys.exit(0)", replaces_finished=False)

    assert await ended(asyncio.create_task(keeper.run())) == 0
    assert len(pids(notes, "ready")) == 2


async def test_a_process_that_stopped_unasked_is_replaced(notes: Path) -> None:
    keeper = supervisor(notes, STAYS, processes=1)
    running = asyncio.create_task(keeper.run())
    await until(lambda: len(pids(notes, "ready")) == 1)

    os.kill(pids(notes, "ready")[0], signal.SIGTERM)

    await until(lambda: len(pids(notes, "ready")) == 2)
    keeper.stop()
    assert await ended(running) == 0


async def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, longest=3.0)

    assert [backoff.delay(deaths) for deaths in (1, 2, 3, 4, 5, 5000)] == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]
