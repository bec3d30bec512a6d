"""Which of the demo's items is of which kind, and what must come of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

__all__ = ["EFFECTIVE", "FEWEST_ITEMS", "HOPELESS", "KILL_AT", "Kind", "Plan"]

FEWEST_ITEMS = 100
KILL_AT = 0.4
"""How much of the work is done when a worker is killed."""


class Kind(StrEnum):
    """What happens to an item; the value is the name of its task."""

    DELIVER = "demo.deliver"
    """Writes a line into the ledger and completes the job, both in one transaction."""
    GREET = "demo.greet"
    """Returns a value; the worker completes such jobs in groups."""
    STORM = "demo.deliver_after_the_storm"
    """Fails once, then does what `deliver` does."""
    LONG_WAY = "demo.deliver_the_long_way"
    """Takes a while, so that a worker killed in the middle surely holds some."""
    NO_ADDRESS = "demo.deliver_without_address"
    """Fails for good at once."""
    BRIDGE_IS_DOWN = "demo.deliver_over_the_broken_bridge"
    """Fails until its attempts are used up."""


EFFECTIVE = frozenset({Kind.DELIVER, Kind.STORM, Kind.LONG_WAY})
"""Kinds that write one line into the ledger."""
HOPELESS = frozenset({Kind.NO_ADDRESS, Kind.BRIDGE_IS_DOWN})
"""Kinds that end as dead letters."""

LONG_WAYS = 16


@dataclass(frozen=True)
class Plan:
    """How many items there are; the rest follows."""

    items: int

    def kind_of(self, item: int) -> Kind:
        """Say what happens to an item, counted from 1."""
        return self._rare.get(item) or (Kind.GREET if item % 5 == 0 else Kind.DELIVER)

    @cached_property
    def counts(self) -> Counter[Kind]:
        """How many items there are of each kind."""
        return Counter(self.kind_of(item) for item in range(1, self.items + 1))

    @property
    def effects(self) -> int:
        """How many lines the ledger must have."""
        return sum(self.counts[kind] for kind in EFFECTIVE)

    @property
    def dead(self) -> int:
        """How many dead letters there must be."""
        return sum(self.counts[kind] for kind in HOPELESS)

    @cached_property
    def _rare(self) -> dict[int, Kind]:
        start = int(self.items * (KILL_AT - 0.05))
        rare = dict.fromkeys(range(start, start + LONG_WAYS), Kind.LONG_WAY)
        rare |= dict.fromkeys(range(50, self.items + 1, 100), Kind.STORM)
        rare |= dict.fromkeys(self._spread(5, offset=7), Kind.NO_ADDRESS)
        return rare | dict.fromkeys(self._spread(3, offset=13), Kind.BRIDGE_IS_DOWN)

    def _spread(self, number: int, *, offset: int) -> list[int]:
        """Choose items evenly over all of them."""
        return [self.items * index // number + offset for index in range(number)]
