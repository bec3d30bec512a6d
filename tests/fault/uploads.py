"""A producer that uploads many files as a batch under a gate; each file's number determines its outcome."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import msgspec

from stagepost.client import JobContext
from stagepost.client.app import App
from stagepost.client.batches import BatchHandle
from stagepost.errors import Permanent, Retryable
from stagepost.model.batch import Item
from tests.fault.tasks import app, commit_effect, configure, soon

UPLOAD = "FAULT_UPLOAD"
KEY, GATE = "upload:42", "dataset:7"
PERMANENT = 50
"""How many files can never be read."""


class Upload(msgspec.Struct, frozen=True):
    """How many files, and how a producer goes through them."""

    files: int
    chunk: int
    skips: bool = False
    """Whether the source begins where the cursor is, instead of at its first file."""
    halt: int | None = None
    """At which file the source waits to be killed."""


def is_late(number: int) -> bool:
    """Whether a file can be read at the second try only: one in a hundred."""
    return number % 100 == 7


def is_broken(number: int, files: int) -> bool:
    """Whether a file can never be read."""
    return number % (files // PERMANENT) == 3


def has_effect(number: int) -> bool:
    """Whether a file's task writes in its own transaction, which takes long; true for one in ten."""
    return number % 10 == 7


def is_deadly(number: int) -> bool:
    """Whether a file's first try lasts until its worker is killed, so that no upload ends before one was."""
    return number == 0


def key_of(number: int) -> str:
    return f"file {number:06}"


@app.task(name="transfer_file", retry=soon)
def transfer_file(ctx: JobContext, number: int, files: int) -> None:
    """Read a file; an effect is in the transaction that completes the item."""
    if is_deadly(number) and ctx.crashes == 0:
        threading.Event().wait()
    if is_broken(number, files):
        raise Permanent("cannot be read")
    if is_late(number) and ctx.failures == 0:
        raise Retryable("the first time", after=0.02)
    if has_effect(number):
        commit_effect(ctx)


@app.task(name="transfer_completed", retry=soon)
def transfer_completed(ctx: JobContext) -> None:
    """What the batch enqueues when it is done."""
    commit_effect(ctx)


@app.task(name="transfer_opened", retry=soon)
def transfer_opened(ctx: JobContext) -> None:
    """What the gate enqueues when it opens."""
    commit_effect(ctx)


def items(upload: Upload, *, first: int = 0) -> Iterator[Item]:
    """The source: the same items in the same order in every life of the producer."""
    for number in range(first, upload.files):
        while number == upload.halt:
            signal.pause()
        yield transfer_file.item(key_of(number), number, upload.files)


def batch_in(app: App) -> BatchHandle:
    gate = app.gate(GATE, on_open=transfer_opened.job())
    return app.batch(KEY, gate=gate, on_complete=transfer_completed.job())


def main() -> None:
    """Begin, or go on where an earlier life stopped; seal at the end."""
    configure()
    upload = msgspec.json.decode(os.environ[UPLOAD], type=Upload)
    batch = batch_in(app)
    if upload.skips:
        batch.resume(lambda cursor: items(upload, first=cursor.position), chunk=upload.chunk)
    else:
        batch.resume(items(upload), chunk=upload.chunk)
    batch.seal()
    app.close()
