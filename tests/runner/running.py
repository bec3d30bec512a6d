"""Runs pieces, as many at once as the machine can handle, and follows them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence

from tests.runner.piece import Piece, Run
from tests.runner.screen import Screen

LOOK_SECONDS = 0.2


def run_pieces(
    pieces: Sequence[Piece], *, at_once: int, screen: Screen, variables: Mapping[str, str] | None = None
) -> list[Run]:
    """Run the pieces in their order, with more environment variables; returns them all, ended."""
    waiting = list(pieces)
    with _stopped_at_last() as runs:
        while waiting or any(not run.is_over for run in runs):
            while waiting and sum(not run.is_over for run in runs) < at_once:
                runs.append(Run.of(waiting.pop(0), variables or {}))
            for run in [run for run in runs if not run.is_over]:
                _follow(run, screen)
            screen.draw(runs, len(waiting))
            time.sleep(LOOK_SECONDS)
    return runs


@contextlib.contextmanager
def _stopped_at_last() -> Iterator[list[Run]]:
    """Leave no process behind, if interrupted either."""
    runs: list[Run] = []
    try:
        yield runs
    finally:
        for run in runs:
            run.interrupt()
        for run in runs:
            run.wait()


def _follow(run: Run, screen: Screen) -> None:
    known = len(run.failures)
    has_ended = run.look()
    for failure in run.failures[known:]:
        screen.show_failure(run, failure)
    if has_ended:
        screen.show_end(run)
