"""Helpers for applications' tests: run jobs immediately, or on request with a clock that the test controls.

    with manual(app) as jobs:
        sign_up("ann@example.com")
        jobs.assert_enqueued(send_mail, "ann@example.com")
        assert jobs.drain().completed == 1

With pytest, use the fixtures `stagepost_manual` or `stagepost_inline` instead; see `stagepost.testing.plugin`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stagepost.testing.clock import ManualClock
    from stagepost.testing.drainer import AttemptRecord, Drained
    from stagepost.testing.enqueued import EnqueuedJob
    from stagepost.testing.modes import Inline, Manual, inline, manual

__all__ = ["AttemptRecord", "Drained", "EnqueuedJob", "Inline", "Manual", "ManualClock", "inline", "manual"]

HOMES = {"Drained": "drainer", "AttemptRecord": "drainer", "EnqueuedJob": "enqueued", "ManualClock": "clock"}


def __getattr__(name: str) -> Any:
    # Imported on first use, because pytest imports this package with its plugin in every run of every project.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES.get(name, 'modes')}"), name)
