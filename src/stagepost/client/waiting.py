"""How long to wait between two looks at something that others bring about."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from stagepost.clock import monotonic
from stagepost.errors import WaitTimeout, duration_of
from stagepost.model.backoff import backoff_seconds
from stagepost.model.context import current_identity

__all__ = ["late", "pauses"]

log = logging.getLogger(__name__)

FIRST_SECONDS = 0.02
LONGEST_SECONDS = 1.0


def pauses(timeout: timedelta | float | None, subject: str) -> Iterator[float]:
    """Yield longer and longer pauses until the timeout; the caller then raises what `late` makes."""
    duration = None if timeout is None else duration_of(timeout, "timeout")
    give_up_at = None if duration is None else monotonic() + duration.total_seconds()
    looks = 0
    with ExitStack() as waiting:
        while True:
            looks += 1
            pause = backoff_seconds(looks, first=FIRST_SECONDS, longest=LONGEST_SECONDS, factor=1.5)
            left = LONGEST_SECONDS if give_up_at is None else give_up_at - monotonic()
            yield max(0.0, min(pause, left))
            if left <= 0:
                return
            if looks == 1:  # the first look found that it has not happened yet
                waiting.enter_context(_known_to_the_worker(subject))


def late(timeout: timedelta | float | None, subject: str, *, missing: str, why: str) -> WaitTimeout:
    """Make the error for a wait that ended without success: what is missing after which time, and why."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout or 0
    return WaitTimeout(f"{subject} {missing} within {seconds:g} s. {why}")


@contextmanager
def _known_to_the_worker(subject: str) -> Iterator[None]:
    """Note that a handler waits, and warn at its first wait: it holds a slot that others may need to get on."""
    identity = current_identity.get()
    if identity is None:
        yield
        return
    if identity.waits_for is None:
        identity.waits_for = []
        log.warning(
            "job %s (%s) waits inside its handler for %s and holds a slot meanwhile. If every slot waits like this, "
            "nothing can end. Submit the work with job.submit and go on in job.then, or make it a pipeline",
            identity.job_id, identity.task_name, subject,
        )  # fmt: skip
    identity.waits_for.append(subject)
    try:
        yield
    finally:
        identity.waits_for.remove(subject)
