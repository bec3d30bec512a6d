"""Renews objects in a forked child, where a lock that another thread held would never be released."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["reset_after_fork"]


class ResetsAfterFork(Protocol):
    """An object with state that a forked child must not share with its parent."""

    def reset(self) -> None:
        """Reset the object in a child, which has one thread. Must not wait for or close anything of the parent."""


_things: weakref.WeakSet[ResetsAfterFork] = weakref.WeakSet()


def reset_after_fork(thing: ResetsAfterFork) -> None:
    """Renew an object in every child that is forked while the object exists."""
    _things.add(thing)


def _reset_all() -> None:
    for thing in list(_things):
        thing.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
