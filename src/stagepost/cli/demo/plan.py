"""The plan of the demo: the kind of each item and its expected outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

__all__ = ["EFFECTIVE", "FEWEST_ITEMS", "HOPELESS", "KILL_AT", "Kind", "Plan"]

FEWEST_ITEMS = 100
KILL_AT = 0.4
"""The share of the work that is done when a worker is killed."""


class Kind(StrEnum):
    """What happens to an item; the value is its task's name."""

    DELIVER = "demo.deliver"
    """Writes a line into the ledger and completes the job in one transaction."""
    GREET = "demo.greet"
    """Returns a value; the worker completes such jobs in groups."""
    STORM = "demo.deliver_after_the_storm"
    """Fails once, then does what `deliver` does."""
    LONG_WAY = "demo.deliver_the_long_way"
    """Takes long enough that the worker is certain to hold some when it is killed."""
    NO_ADDRESS = "demo.deliver_without_address"
    """Fails permanently at the first attempt."""
    BRIDGE_IS_DOWN = "demo.deliver_over_the_broken_bridge"
    """Fails until its attempts are used up."""


EFFECTIVE = frozenset({Kind.DELIVER, Kind.STORM, Kind.LONG_WAY})
"""Kinds that write one line into the ledger."""
HOPELESS = frozenset({Kind.NO_ADDRESS, Kind.BRIDGE_IS_DOWN})
"""Kinds that end as dead letters."""

LONG_WAYS = 16


@dataclass(frozen=True)
class Plan:
    """The number of items, from which everything else follows."""

    items: int

    def kind_of(self, item: int) -> Kind:
        """Return the kind of an item, counted from 1."""
        return self._rare.get(item) or (Kind.GREET if item % 5 == 0 else Kind.DELIVER)

    @cached_property
    def counts(self) -> Counter[Kind]:
        """The number of items of each kind."""
        return Counter(self.kind_of(item) for item in range(1, self.items + 1))

    @property
    def effects(self) -> int:
        """The number of lines that the ledger must have."""
        return sum(self.counts[kind] for kind in EFFECTIVE)

    @property
    def dead(self) -> int:
        """The number of dead letters that there must be."""
        return sum(self.counts[kind] for kind in HOPELESS)

    @cached_property
    def _rare(self) -> dict[int, Kind]:
        start = int(self.items * (KILL_AT - 0.05))
        rare = dict.fromkeys(range(start, start + LONG_WAYS), Kind.LONG_WAY)
        rare |= dict.fromkeys(range(50, self.items + 1, 100), Kind.STORM)
        rare |= dict.fromkeys(self._spread(5, offset=7), Kind.NO_ADDRESS)
        return rare | dict.fromkeys(self._spread(3, offset=13), Kind.BRIDGE_IS_DOWN)

    def _spread(self, number: int, *, offset: int) -> list[int]:
        """Choose items that are spread evenly over the whole run."""
        return [self.items * index // number + offset for index in range(number)]
