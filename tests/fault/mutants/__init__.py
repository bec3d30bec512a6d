"""Faults planted in the product itself, and the tests that must notice: a suite that cannot fail shows nothing."""

from __future__ import annotations

from tests.fault.mutants import counts, events, fences, large, progress, rabbitmq, store, worker
from tests.fault.mutants.planting import Mutant, changed_text, planted

__all__ = ["MUTANTS", "Mutant", "changed_text", "planted"]

MUTANTS = [
    mutant for topic in (fences, counts, store, worker, rabbitmq, progress, large, events) for mutant in topic.MUTANTS
]
