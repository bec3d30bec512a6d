"""Tells this process's own workers that jobs were committed, with nothing in between."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from stagepost.database.forks import renew_after_fork

__all__ = ["Doorbell", "LentConnection"]

Answer = Callable[[Collection[str]], None]
"""Takes the names of the queues that have something new; called by whatever thread rings."""


@dataclass
class LentConnection:
    """A connection in somebody's hands, and what is to be told when it is committed."""

    queues: set[str] = field(default_factory=set)
    """Those that have something new."""
    calls: list[Callable[[], None]] = field(default_factory=list)


class Doorbell:
    """Rung after a commit with the names of queues; whoever answers is called at once, in the ringing thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._stoppers: list[Callable[[], None]] = []
        self._lent: dict[int, LentConnection] = {}
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget who answers: the workers of the parent are not in the child."""
        self._lock = threading.Lock()
        self._answers = []
        self._stoppers = []

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

    def answer_stops(self, answer: Callable[[], None]) -> None:
        """Be called from now on when a running job was asked to stop."""
        with self._lock:
            self._stoppers.append(answer)

    def ignore_stops(self, answer: Callable[[], None]) -> None:
        """Be called no more; nothing happens to one that never answered."""
        with self._lock, contextlib.suppress(ValueError):
            self._stoppers.remove(answer)

    def ring_for_stop(self, *, tx: Any = None) -> None:
        """Tell that a running job was asked to stop, once `tx` is committed if there is one."""
        if tx is not None:
            self.call_after_commit(tx, self.ring_for_stop)
            return
        with self._lock:
            answers = tuple(self._stoppers)
        for answer in answers:
            answer()

    def ring(self, queues: Collection[str], *, tx: Any = None) -> None:
        """Tell that jobs were committed; those written through `tx` count once whoever lent it has committed it."""
        if tx is not None:
            if loan := self._lent.get(id(tx)):
                loan.queues.update(queues)
        elif queues:
            with self._lock:
                answers = tuple(self._answers)
            for answer in answers:
                answer(queues)

    def has_lent(self, tx: Any) -> bool:
        """Whether `tx` is a connection that whoever rings will commit."""
        return id(tx) in self._lent

    def call_after_commit(self, tx: Any, call: Callable[[], None]) -> None:
        """Have `call` made once `tx` is committed, if it is lent; otherwise nobody here will know."""
        if loan := self._lent.get(id(tx)):
            loan.calls.append(call)

    @contextlib.contextmanager
    def lent(self, tx: Any) -> Iterator[LentConnection]:
        """Collect what is to be told of what is written through `tx` in the body; for `tell` after the commit."""
        loan = self._lent[id(tx)] = LentConnection()
        try:
            yield loan
        finally:
            del self._lent[id(tx)]

    def tell(self, loan: LentConnection) -> None:
        """Tell that what was written in a loan is committed."""
        for call in loan.calls:
            call()
        self.ring(loan.queues)
