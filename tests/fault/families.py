"""Families of jobs whose random course is predictable: everything follows from a name and a seed."""

from __future__ import annotations

import hashlib
import time

from stagepost.client import JobContext
from stagepost.errors import Permanent, Retryable
from tests.fault.tasks import app, note, soon

WIDTH = 3
DEPTH = 3
"""Four generations: the one that is asked for, and three of children."""


def chance(seed: int, name: str, question: str) -> int:
    """A number below 100 that is always the same for the same question."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {name} {question}".encode(), digest_size=4).digest()) % 100


def fails(seed: int, name: str) -> bool:
    """Whether the last generation's member fails permanently."""
    return len(name) > DEPTH and chance(seed, name, "fails?") < 15


def is_strict(name: str) -> bool:
    """Whether a failed child fails its parent."""
    return len(name) == DEPTH


def joins(seed: int, name: str) -> bool:
    """Whether a parent has a continuation."""
    return chance(seed, name, "joins?") < 50


@app.task(name="member", retry=soon)
def member(ctx: JobContext, seed: int, name: str) -> int:
    """Submit three children in one of several ways, unless it is the last of its line."""
    return live(ctx, seed, name)


@app.task(name="strict_member", retry=soon, on_child_failed="fail")
def strict_member(ctx: JobContext, seed: int, name: str) -> int:
    """The same, failed by a failed child."""
    return live(ctx, seed, name)


def live(ctx: JobContext, seed: int, name: str) -> int:
    note(ctx, "start")
    if chance(seed, name, "late?") < 20 and ctx.failures == 0:
        raise Retryable("the first time", after=0.02)
    if len(name) > DEPTH:
        time.sleep(0.02)
        if fails(seed, name):
            raise Permanent("on purpose")
        return 1
    kind = strict_member if is_strict(name + "0") else member
    names = [f"{name}{number}" for number in range(WIDTH)]
    how = chance(seed, name, "how?")
    if how < 40:
        for child in names:
            ctx.submit(kind, seed, child)
            time.sleep(0.01)
    elif how < 70:
        ctx.submit_many(kind.item(child, seed, child) for child in names)
    if joins(seed, name):
        ctx.then(join, name)
    if how >= 70:
        with app.transaction() as tx:
            ctx.submit_many([kind.job(seed, child) for child in names], tx=tx)
            time.sleep(0.02)
            ctx.complete(tx, 1)
    return 1


@app.task(name="join", retry=soon)
def join(ctx: JobContext, name: str) -> int:
    """Add up the children's results."""
    note(ctx, f"join {name}")
    return 1 + sum(child.result or 0 for child in ctx.children())
