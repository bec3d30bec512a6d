"""Tells this process's own workers that jobs were committed, with nothing in between."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

from stagepost.store.forks import renew_after_fork

__all__ = ["Doorbell"]

Answer = Callable[[Collection[str]], None]
"""Takes the names of the queues that have something new; called by whatever thread rings."""


class Doorbell:
    """Rung after a commit with the names of queues; whoever answers is called at once, in the ringing thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._lent: dict[int, set[str]] = {}
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget who answers: the workers of the parent are not in the child."""
        self._lock = threading.Lock()
        self._answers = []

    @property
    def is_answered(self) -> bool:
        """Whether anybody in this process would be called."""
        return bool(self._answers)

    def answer(self, answer: Answer) -> None:
        """Be called from now on."""
        with self._lock:
            self._answers.append(answer)

    def ignore(self, answer: Answer) -> None:
        """Be called no more; nothing happens to one that never answered."""
        with self._lock, contextlib.suppress(ValueError):
            self._answers.remove(answer)

    def ring(self, queues: Collection[str], *, tx: Any = None) -> None:
        """Tell that jobs were committed; those written through `tx` count once whoever lent it has committed it."""
        if tx is not None:
            self._lent.get(id(tx), set()).update(queues)
        elif queues:
            with self._lock:
                answers = tuple(self._answers)
            for answer in answers:
                answer(queues)

    def has_lent(self, tx: Any) -> bool:
        """Whether `tx` is a connection that whoever rings will commit."""
        return id(tx) in self._lent

    @contextlib.contextmanager
    def lent(self, tx: Any) -> Iterator[set[str]]:
        """Collect the queues of what is written through `tx` in the body; to be rung after the commit."""
        queues: set[str] = set()
        self._lent[id(tx)] = queues
        try:
            yield queues
        finally:
            del self._lent[id(tx)]
