"""Tasks that produce large values: results, errors, progress, children."""

from __future__ import annotations

from stagepost import PayloadLimits
from stagepost.client import JobContext
from stagepost.errors import Permanent
from tests.fault.tasks import app, note

AWKWARD = "\"'\\é"
"""Characters that each take several bytes in a statement."""
MOST_BYTES = 1_048_576


@app.task(name="give_large", limits=PayloadLimits(max_bytes=MOST_BYTES))
def give_large(ctx: JobContext, size: int) -> str:
    """Give a result of so many characters, and report nearly as much as can be on the way."""
    note(ctx, "start")
    ctx.report("x" * 10_000)
    return (AWKWARD + "x" * 96) * (size // 100)


@app.task(name="fail_large")
def fail_large(ctx: JobContext) -> None:
    """Fail with an error and a traceback that are cut to the longest that is stored."""
    note(ctx, "start")
    raise Permanent(AWKWARD * 100_000)


@app.task(name="take_large", limits=PayloadLimits(max_bytes=MOST_BYTES))
def take_large(ctx: JobContext, text: str) -> int:
    note(ctx, "start")
    return len(text)
