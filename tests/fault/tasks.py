"""An app with good and bad tasks of every kind, configured by the environment, like its processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import msgspec

from stagepost.client import JobContext
from stagepost.config import Settings
from stagepost.errors import LeaseLost, Permanent, Retryable
from stagepost.model.retry import RetryPolicy
from tests.fault.async_transactions import async_transaction, insert_effect
from tests.fault.backends import execute
from tests.fault.observations import LIMITS
from tests.fault.records import SINK, Sink
from tests.fault.trapped import KILL_POINT, KillPoint, Suicide, TrappedApp
from tests.property.dags import fails, value_of

INSERT_EFFECT = "insert into ledger (job_id, attempt, effect, at) values (:id, :attempt, 'done', 0)"

app = TrappedApp(auto_migrate=False)
sink = Sink(Path(os.devnull))


def configure() -> None:
    """Read the environment; once more in a process that was forked after this module was imported."""
    app.settings = Settings.load()
    sink.path = Path(os.environ.get(SINK, os.devnull))
    if KILL_POINT in os.environ:
        app.trap = Suicide(msgspec.json.decode(os.environ[KILL_POINT], type=KillPoint))


configure()
soon = RetryPolicy(first_delay=timedelta(milliseconds=20), minimum_delay=timedelta(0), jitter=0)


def note(ctx: JobContext, what: str) -> None:
    sink.write(ctx.id, ctx.attempt, what, ctx.worker)


def commit_effect(ctx: JobContext) -> None:
    """Write the effect and complete the job in one transaction of the handler's own."""
    with app.transaction() as tx:
        execute(tx, INSERT_EFFECT, {"id": ctx.id, "attempt": ctx.attempt})
        ctx.complete(tx)


@app.task(name="transfer", retry=soon)
def transfer(ctx: JobContext, seconds: float = 0.0) -> None:
    """An effect in the transaction that completes the job."""
    note(ctx, "start")
    if seconds:
        time.sleep(seconds)
    commit_effect(ctx)


@app.task(name="transfer_two_at_once", retry=soon, max_running=LIMITS["transfer_two_at_once"])
def transfer_two_at_once(ctx: JobContext, seconds: float = 0.0) -> None:
    """The same under a limit."""
    transfer.function(ctx, seconds)


@app.task(name="transfer_three_at_once", retry=soon, max_running=LIMITS["transfer_three_at_once"])
def transfer_three_at_once(ctx: JobContext, seconds: float = 0.0) -> None:
    """The same under another limit."""
    transfer.function(ctx, seconds)


@app.task(name="transfer_flaky", retry=soon)
def transfer_flaky(ctx: JobContext) -> None:
    """Fails once, in its own transaction, then does its work."""
    note(ctx, "start")
    if ctx.failures == 0:
        with app.transaction() as tx:
            ctx.fail(tx, Retryable("the first time", after=0.02))
        return
    commit_effect(ctx)


@app.task(name="transfer_async", retry=soon)
async def transfer_async(ctx: JobContext) -> None:
    """The same on an asynchronous connection of the handler's own."""
    note(ctx, "start")
    async with async_transaction(app.settings.database_url) as (tx, style):
        await insert_effect(tx, style, ctx.id, ctx.attempt)
        await ctx.complete_async(tx)


@app.task(name="transfer_at_gate", retry=soon)
def transfer_at_gate(ctx: JobContext, gate: str, inside: bool = False) -> None:
    """Waits in its first attempt until a file appears, before its transaction or right before its commit."""
    note(ctx, "start")
    try:
        if not inside:
            wait_at(ctx, gate)
            commit_effect(ctx)
            return
        with app.transaction() as tx:
            execute(tx, INSERT_EFFECT, {"id": ctx.id, "attempt": ctx.attempt})
            ctx.complete(tx)
            wait_at(ctx, gate)
    except LeaseLost:
        note(ctx, "lease lost")
        raise


@app.task(name="transfer_at_two_gates", retry=soon)
def transfer_at_two_gates(ctx: JobContext, first: str, second: str) -> None:
    """Waits until a file appears, another one in its first attempt than in later ones, and reports all the while."""
    note(ctx, "start")
    note(ctx, "at gate")
    looks = 0
    while not Path(first if ctx.attempt == 1 else second).exists():
        ctx.report({"attempt": ctx.attempt, "looks": (looks := looks + 1)})
        time.sleep(0.005)
    try:
        commit_effect(ctx)
    except LeaseLost:
        note(ctx, "lease lost")
        raise


def wait_at(ctx: JobContext, gate: str) -> None:
    note(ctx, "at gate")
    if ctx.attempt == 1:
        wait_for(gate)


def wait_for(gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.005)


@app.task(name="note", retry=soon)
def plain(ctx: JobContext) -> str:
    """An effect outside, then a result that the worker stores."""
    note(ctx, "start")
    note(ctx, "effect")
    return ctx.id


@app.task(name="note_two_at_once", retry=soon, max_running=LIMITS["note_two_at_once"])
def note_two_at_once(ctx: JobContext) -> str:
    """The same under a limit."""
    note(ctx, "start")
    note(ctx, "effect")
    return ctx.id


@app.task(name="node", retry=soon)
def node(ctx: JobContext, node: str, bad: int, given: list[int | list[int] | None], element: int | None = None) -> int:
    """A step of a random pipeline, whose result depends on all its inputs."""
    note(ctx, "start")
    arguments = {"node": node, "bad": bad, "given": given} | ({} if element is None else {"element": element})
    if fails(arguments):
        raise Permanent("on purpose")
    time.sleep(0.05)
    return value_of(arguments)


@app.task(name="note_async", retry=soon)
async def plain_async(ctx: JobContext, seconds: float = 0.0) -> str:
    note(ctx, "start")
    await asyncio.sleep(seconds)
    note(ctx, "effect")
    return ctx.id


@app.task(name="note_flaky", retry=soon)
def flaky(ctx: JobContext) -> str:
    note(ctx, "start")
    if ctx.failures == 0:
        raise Retryable("the first time", after=0.02)
    note(ctx, "effect")
    return ctx.id


@app.task(name="note_at_gate", retry=soon)
def note_at_gate(ctx: JobContext, gate: str) -> None:
    """Waits until a file appears, or its worker is killed."""
    note(ctx, "start")
    wait_for(gate)
    note(ctx, "effect")


@app.task(name="note_at_gate_async", retry=soon)
async def note_at_gate_async(ctx: JobContext, gate: str) -> None:
    note(ctx, "start")
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - the test is another process
        await asyncio.sleep(0.02)
    note(ctx, "effect")


@app.task(name="note_late", retry=soon)
def note_late(ctx: JobContext, due: float) -> None:
    """Fails once, to be retried at a given time, and then reports how late the retry is."""
    if ctx.failures == 0:
        raise Retryable("the first time", after=max(0.0, due - time.time()))
    note(ctx, f"late {time.time() - ctx.available_at.timestamp():.4f}")
    note(ctx, "effect")


@app.task(name="note_in_process", pool="process", retry=soon)
def in_process(ctx: JobContext) -> str:
    note(ctx, "start")
    note(ctx, "effect")
    return ctx.id


@app.task(name="note_then_die", retry=soon)
def note_then_die(ctx: JobContext) -> str:
    """Its first attempt dies right after its effect outside."""
    note(ctx, "start")
    note(ctx, "effect")
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.id


@app.task(name="transfer_until_stopped", retry=soon)
def transfer_until_stopped(ctx: JobContext, seconds: float, seconds_again: float | None = None) -> None:
    """Works for `seconds`, or `seconds_again` in later attempts, unless it is asked to stop."""
    note(ctx, "start")
    deadline = time.monotonic() + (seconds if ctx.attempt == 1 or seconds_again is None else seconds_again)
    while time.monotonic() < deadline:
        if ctx.is_cancelled:
            note(ctx, "stopped")
        ctx.raise_if_cancelled()
        time.sleep(0.005)
    commit_effect(ctx)


@app.task(name="transfer_until_stopped_async", retry=soon)
async def transfer_until_stopped_async(ctx: JobContext, seconds: float) -> None:
    note(ctx, "start")
    await asyncio.sleep(seconds)
    commit_effect(ctx)


@app.task(name="transfer_until_stopped_in_process", pool="process", retry=soon)
def transfer_until_stopped_in_process(ctx: JobContext, seconds: float) -> None:
    note(ctx, "start")
    time.sleep(seconds)
    commit_effect(ctx)


@app.task(name="transfer_blocking_loop", retry=soon)
async def transfer_blocking_loop(ctx: JobContext, gate: str) -> None:
    """Blocks the event loop until a file appears, which an async handler must never do."""
    note(ctx, "start")
    wait_for(gate)
    commit_effect(ctx)


@app.task(name="transfer_holding_gil", retry=soon)
def transfer_holding_gil(ctx: JobContext, pipe: str) -> None:
    """Holds the interpreter's lock in its first attempt until somebody opens the other end of a named pipe.

    So long no thread of this process can renew a lease.
    """
    note(ctx, "start")
    if ctx.attempt == 1:
        os.close(ctypes.PyDLL(None).open(pipe.encode(), os.O_RDONLY))
    try:
        commit_effect(ctx)
    except LeaseLost:
        note(ctx, "lease lost")
        raise


@app.task(name="transfer_spinning", retry=soon)
def transfer_spinning(ctx: JobContext, seconds: float) -> None:
    """Computes without a pause, and lets other threads run only when the interpreter makes it."""
    note(ctx, "start")
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        sum(range(1000))
    commit_effect(ctx)


@app.task(name="note_beside_full_executor", retry=soon)
async def note_beside_full_executor(ctx: JobContext, threads: int, gate: str) -> None:
    """Fills the loop's default executor with calls that wait until a file appears, and waits for the last of them."""
    note(ctx, "start")
    await asyncio.gather(*(asyncio.to_thread(wait_for, gate) for _ in range(threads)))
    note(ctx, "effect")


@app.task(name="transfer_forking", retry=soon)
def transfer_forking(ctx: JobContext) -> None:
    """Forks while other threads use the database; the child uses it, too."""
    note(ctx, "start")
    child = os.fork()
    if child == 0:
        use_after_fork(ctx)
    # Not by multiprocessing, where a thread that starts a child may take the exit code another one waits for.
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(f"the child ended with {os.waitstatus_to_exitcode(status)}")
    commit_effect(ctx)


def use_after_fork(ctx: JobContext) -> NoReturn:
    signal.alarm(50)
    try:
        app.client.job(ctx.id)
        with app.transaction() as tx:
            execute(tx, "select count(*) from ledger where job_id = :id", {"id": ctx.id})
        note(ctx, "in child")
    except BaseException as error:  # noqa: BLE001 - this process must not go on as its parent
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)
    os._exit(0)


class Outrage(BaseException):
    """Not an Exception."""


RAISED: dict[str, type[BaseException]] = {
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "StopIteration": StopIteration,
    "Outrage": Outrage,
}


@app.task(name="raise", retry=soon)
def raise_(ctx: JobContext, kind: str) -> None:
    note(ctx, "start")
    raise RAISED[kind]("on purpose")


@app.task(name="raise_async", retry=soon)
async def raise_async(ctx: JobContext, kind: str) -> None:
    note(ctx, "start")
    raise RAISED[kind]("on purpose")


@app.task(name="raise_in_process", pool="process", retry=soon)
def raise_in_process(ctx: JobContext, kind: str) -> None:
    note(ctx, "start")
    raise RAISED[kind]("on purpose")


@app.task(name="ignore_timeout", timeout=timedelta(seconds=0.2), retry=soon)
def ignore_timeout(ctx: JobContext, gate: str) -> None:
    """Neither notices that its time is up nor that it is asked to stop."""
    note(ctx, "start")
    wait_for(gate)
    note(ctx, "end")


@app.task(name="transfer_too_late", timeout=timedelta(seconds=0.2), retry=soon)
def transfer_too_late(ctx: JobContext, gate: str) -> None:
    """Its first attempt commits when its time is up: after a file has appeared, or at once if none is named."""
    note(ctx, "start")
    if gate:
        wait_at(ctx, gate)
    while ctx.attempt == 1 and not ctx.is_cancelled:
        time.sleep(0.001)
    try:
        commit_effect(ctx)
    except LeaseLost:
        note(ctx, "lease lost")
        raise


@app.task(name="ignore_timeout_async", timeout=timedelta(seconds=0.2), retry=soon)
async def ignore_timeout_async(ctx: JobContext) -> None:
    note(ctx, "start")
    for _ in range(3):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note(ctx, "asked to stop")


@app.task(name="ignore_timeout_in_process", pool="process", timeout=timedelta(seconds=1.5), retry=soon)
def ignore_timeout_in_process(ctx: JobContext) -> None:
    note(ctx, "start")
    while True:
        time.sleep(60)


def die(how: str) -> None:
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(7)
        case "memory":
            resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
            bytearray(2**31)
        case _:
            os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="die", retry=soon)
def die_in_thread(ctx: JobContext, how: str) -> None:
    note(ctx, "start")
    die(how)


@app.task(name="die_async", retry=soon)
async def die_on_loop(ctx: JobContext, how: str) -> None:
    note(ctx, "start")
    die(how)


@app.task(name="die_in_process", pool="process", retry=soon)
def die_in_process(ctx: JobContext, how: str) -> None:
    note(ctx, "start")
    die(how)
