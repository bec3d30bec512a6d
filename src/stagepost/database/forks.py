"""Makes copies usable in a forked child: there, a lock that another thread held is never released."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["renew_after_fork"]


class Renewable(Protocol):
    """Has state that a child must not share with its parent."""

    def renew(self) -> None:
        """Start afresh, in a child that has one thread; nothing of the parent's may be waited for or closed."""


_things: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(thing: Renewable) -> None:
    """Have something renewed in every child that is forked while it lives."""
    _things.add(thing)


def _renew_all() -> None:
    for thing in list(_things):
        thing.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
