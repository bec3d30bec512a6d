"""Tasks for processes, in a separate module, which a handler's process imports as a worker's would."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import msgspec

from stagepost import App, JobContext, Permanent
from stagepost.model.context import current_trace
from tests.acceptance.helpers import AT_ONCE, write

app = App()
"""Finds the database in the environment, as a handler's process does."""


@app.task(pool="process")
def cube(number: int) -> dict[str, int]:
    """Answers, and says where from."""
    return {"cube": number**3, "pid": os.getpid()}


@app.task(pool="process", retry=AT_ONCE)
def refuse(why: str) -> None:
    """Raises something permanent."""
    raise Permanent(why)


@app.task(pool="process", retry=AT_ONCE)
def die() -> None:
    """Takes its process down, as a segmentation fault does."""
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task(pool="process", retry=AT_ONCE, timeout=timedelta(seconds=0.5))
def hang() -> None:
    """Heeds nothing."""
    while True:
        time.sleep(60)


@app.task(pool="process")
def sleep() -> None:
    """Heeds nothing either, and has no timeout."""
    time.sleep(600)


@app.task(pool="process")
def pay(job: JobContext) -> str:
    """Ends its job in its own transaction."""
    with app.transaction() as tx:
        write(tx, f"paid for {current_trace.get().user_id}")
        job.complete(tx, "receipt")
    return "not this one"


class Told(msgspec.Struct):
    """What `tell` reports."""

    step: int
    number: int


@app.task(pool="process", progress=Told)
def tell(job: JobContext, number: int, gate: str) -> int:
    """Reports far more often than anybody looks, and waits at a gate."""
    for step in range(10_000):
        job.report(Told(step, number))
    while not Path(gate).exists():
        time.sleep(0.01)
    return number


@app.task(pool="process")
def start_and_stop() -> list[int | None]:
    """Starts a program and a process by fork, stops them, and says how they ended."""
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    forked.start()
    forked.terminate()
    forked.join()
    return [program.wait(), forked.exitcode]
