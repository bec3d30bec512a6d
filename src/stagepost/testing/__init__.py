"""Helpers for the tests of applications: jobs that run at once, or when a test says so, by a clock it moves.

    with manual(app) as jobs:
        sign_up("ann@example.com")
        jobs.assert_enqueued(send_mail, "ann@example.com")
        assert jobs.drain().completed == 1

With pytest, ask for the fixtures `stagepost_manual` or `stagepost_inline` instead; see `stagepost.testing.plugin`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stagepost.testing.drainer import Drained, Run
    from stagepost.testing.enqueued import EnqueuedJob
    from stagepost.testing.modes import Inline, Manual, inline, manual

__all__ = ["Drained", "EnqueuedJob", "Inline", "Manual", "Run", "inline", "manual"]

HOMES = {"Drained": "drainer", "Run": "drainer", "EnqueuedJob": "enqueued"}


def __getattr__(name: str) -> Any:
    # Imported when asked for: pytest imports this package, on the way to its plugin, in every run of every project.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES.get(name, 'modes')}"), name)
