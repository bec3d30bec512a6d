"""Figures about jobs that delay each other: long jobs, limit keys, rate limits, tasks that no worker knows."""

from __future__ import annotations

from benchmarks.contestant import Contestant, Figure, Figures
from benchmarks.kit.contender import FLOW_VARIABLE, NO_PREFETCH

__all__ = ["FIGURES"]

OWN_PREFETCH = {FLOW_VARIABLE: "own-prefetch"}


def _mixed(contestant: Contestant) -> Figures:
    yield "mixed", contestant.call("mixed", *_sizes_of_mixed(contestant), variables=OWN_PREFETCH)
    if contestant.entry.program != "stagepost" or contestant.entry.broker:
        return  # prefetch is no setting of theirs, or not the same one
    variables = {FLOW_VARIABLE: NO_PREFETCH}
    yield "mixed_no_prefetch", contestant.call("mixed", *_sizes_of_mixed(contestant), variables=variables)


def _sizes_of_mixed(contestant: Contestant) -> tuple[object, ...]:
    sizes = contestant.sizes
    return (sizes.long_jobs, sizes.quick_jobs, "--slots", sizes.slots, "--limit", sizes.wait_seconds)


def _plain(contestant: Contestant) -> Figures:
    jobs = contestant.sizes.keyed_jobs
    contestant.call("enqueue-keyed", 0, "--keys", 1)  # says at once whether it has limits per key
    if contestant.entry.broker:
        contestant.call("enqueue-bulk", jobs, "--unsent")  # as those with keys are
    else:
        contestant.fill(jobs)
    yield "keys_plain", contestant.call("drain", jobs)


def _keys(contestant: Contestant) -> Figures:
    yield "keys", _drain_of_keys(contestant, contestant.sizes.keys)


def _keys_each(contestant: Contestant) -> Figures:
    yield "keys_each", _drain_of_keys(contestant, contestant.sizes.keyed_jobs)


def _drain_of_keys(contestant: Contestant, keys: int) -> dict[str, object]:
    jobs = contestant.sizes.keyed_jobs
    contestant.call("enqueue-keyed", jobs, "--keys", keys)
    return {**contestant.call("drain", jobs), "keys": keys}


def _rated(contestant: Contestant) -> Figures:
    sizes = contestant.sizes
    limits = ("--slots", sizes.slots, "--seconds", sizes.rated_seconds, "--limit", sizes.wait_seconds)
    yield "rated", contestant.call("rated", sizes.rated_jobs, *limits, variables=OWN_PREFETCH)


def _unknown(contestant: Contestant) -> Figures:
    sizes = contestant.sizes
    counts = (sizes.unknown_jobs, "--singly", sizes.unknown_singly, "--plain", sizes.plain_jobs)
    limits = ("--slots", sizes.slots, "--limit", sizes.wait_seconds)
    yield "unknown", contestant.call("unknown", *counts, *limits, variables=OWN_PREFETCH)


FIGURES: dict[str, tuple[Figure, ...]] = {
    "mixed": (Figure(("mixed",), _mixed),),
    "keys": (
        # A contender without limits per key says so in the first visit, for all three.
        Figure(("keys_plain", "keys", "keys_each"), _plain),
        Figure(("keys",), _keys),
        Figure(("keys_each",), _keys_each),
    ),
    "rated": (Figure(("rated",), _rated),),
    "unknown": (Figure(("unknown",), _unknown),),
}
"""By the name that `--figures` takes."""
