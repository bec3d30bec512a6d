"""The models hold, and each deliberately broken variant violates the property that names its fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.models.checker import CYCLE, MODELS, STATE, check, definitions_in

pytestmark = [pytest.mark.usefixtures("spin"), pytest.mark.timeout(1800)]

Definitions = tuple[str, ...]

NO_FAULTS = ("PAUSES=0", "DEATHS=0", "LOST_REPLIES=0")
NO_OPERATORS = ("FAILURES=0", "RETRIES=0", "CANCELS=0")
ONLY_THE_BROKER = ("PAUSES=0", "DEATHS=0")
BUDGETS = {"PAUSES", "DEATHS", "LOST_REPLIES", "FAILURES", "RETRIES", "CANCELS"}
BUDGETS |= {"LOSSES", "REPEATS", "RELAY_DEATHS", "PUT_BACKS", "SWALLOWS"}
SILENT_PROGRAMS = ("SWALLOWS=1", "PUT_BACKS=0", *ONLY_THE_BROKER)

QUICK = {
    "producer-safe",
    "gate-safe",
    "batch-NO_FENCE-attempts_settle_once",
    "gate-CHECK_WITHOUT_LOCK-callers_find_it_open",
}
"""What `./dev test` checks."""

HOLDS: list[tuple[str, str, Definitions]] = [
    ("batch.pml", "safe", ()),
    ("batch.pml", "ends", NO_OPERATORS),
    ("batch.pml", "ends", ("PAUSES=0", "LOST_REPLIES=0")),
    ("producer.pml", "safe", ()),
    ("producer.pml", "ends", ()),
    ("gate.pml", "safe", ()),
    ("gate.pml", "ends", ()),
    ("outbox.pml", "safe", ("DEATHS=0",)),
    ("outbox.pml", "safe", ("PAUSES=0", "REPEATS=0")),
    ("outbox.pml", "ends", ONLY_THE_BROKER),
    ("outbox.pml", "safe", SILENT_PROGRAMS),
    ("outbox.pml", "ends_or_dies", SILENT_PROGRAMS),
]

# Ids made from keys, and a cursor that is compared and moved with its chunk: each is enough without the other. So are
# marks that are made in the right order and place, and a search for what was lost.
HOLDS_STILL: list[tuple[str, str, Definitions]] = [
    ("producer.pml", "safe", ("RANDOM_IDS",)),
    ("producer.pml", "safe", ("CURSOR_LATER",)),
    ("producer.pml", "safe", ("CHUNK_WITHOUT_LOCK",)),
    ("outbox.pml", "ends", ("MARK_FIRST", "REPEATS=0", *ONLY_THE_BROKER)),
    ("outbox.pml", "ends", ("MARK_WHAT_CHANGED", *ONLY_THE_BROKER)),
    ("outbox.pml", "ends", ("NO_RECONCILE", "LOSSES=0", *ONLY_THE_BROKER)),
]

BROKEN: list[tuple[str, Definitions, str, str]] = [
    ("batch.pml", ("NO_FENCE",), "attempts_settle_once", STATE),
    ("batch.pml", ("RESCUE_WHAT_WAS_READ",), "items_complete_once", STATE),
    ("batch.pml", ("COUNT_ANYWAY",), "counts_are_exact", STATE),
    ("batch.pml", ("DONE_WITHOUT_SEAL",), "completion_is_last", STATE),
    ("batch.pml", ("RETRY_WITHOUT_LOCK", *NO_FAULTS), "completion_is_last", STATE),
    ("batch.pml", ("LOOK_BEFORE_LOCK", *NO_FAULTS), "completion_is_last", STATE),
    ("batch.pml", ("FOLD_WITHOUT_LOCK",), "completion_fires_once", STATE),
    ("batch.pml", ("FOLD_ONLY_WHILE_SETTLING", *NO_FAULTS, *NO_OPERATORS), "ends", CYCLE),
    ("batch.pml", ("UPKEEP_WITHOUT_FOLD", "DEATHS=1", "PAUSES=0", *NO_OPERATORS), "ends", CYCLE),
    ("batch.pml", ("SEAL_WITHOUT_FOLD", *NO_FAULTS, *NO_OPERATORS), "ends", CYCLE),
    ("batch.pml", ("CANCEL_WITHOUT_FOLD", "CANCELS=1", "FAILURES=0", *NO_FAULTS), "ends", CYCLE),
    ("producer.pml", ("CURSOR_FIRST",), "nothing_is_lost", STATE),
    ("producer.pml", ("CURSOR_LATER", "RANDOM_IDS"), "nothing_is_doubled", STATE),
    ("producer.pml", ("CHUNK_WITHOUT_LOCK", "RANDOM_IDS"), "nothing_is_doubled", STATE),
    ("producer.pml", ("COUNT_WHAT_IS_OFFERED", "CURSOR_LATER"), "counts_are_exact", STATE),
    ("gate.pml", ("CHECK_WITHOUT_LOCK",), "callers_find_it_open", STATE),
    ("gate.pml", ("START_WITHOUT_LOCK",), "gate_is_honest", STATE),
    ("gate.pml", ("OPEN_AFTER_COMMIT",), "gate_opens_once", STATE),
    ("gate.pml", ("FINISH_WITHOUT_LOCK",), "ends", CYCLE),
    ("outbox.pml", ("NO_RECONCILE", *ONLY_THE_BROKER), "ends", CYCLE),
    ("outbox.pml", ("MARK_FIRST", "NO_RECONCILE", "LOSSES=0", *ONLY_THE_BROKER), "ends", CYCLE),
    ("outbox.pml", ("MARK_WHAT_CHANGED", "NO_RECONCILE", "LOSSES=0", *ONLY_THE_BROKER), "ends", CYCLE),
    ("outbox.pml", ("MARK_FIRST", *ONLY_THE_BROKER), "only_lost_is_sent_again", STATE),
    ("outbox.pml", ("IGNORE_WAITING", *ONLY_THE_BROKER), "only_lost_is_sent_again", STATE),
    ("outbox.pml", ("NO_GIVING_UP", "FAILURES=0", *SILENT_PROGRAMS), "ends_or_dies", CYCLE),
    ("outbox.pml", ("CLAIM_WITHOUT_ATTEMPT", *ONLY_THE_BROKER), "an_attempt_starts_once", STATE),
]

REACHED: list[tuple[str, str, Definitions]] = [
    ("batch.pml", "never_held", ()),
    ("batch.pml", "never_rescued", ()),
    ("batch.pml", "never_retried_when_done", NO_FAULTS),
    ("batch.pml", "never_cancelled_midway", ()),
    ("outbox.pml", "never_lost", ()),
    ("outbox.pml", "never_late", ()),
    ("outbox.pml", "never_given_up", SILENT_PROGRAMS),
]


def named(*parts: str | Definitions) -> str:
    words = [[part] if isinstance(part, str) else part for part in parts]
    return "-".join(word.removesuffix(".pml") for group in words for word in group)


def params(cases: dict[str, tuple[Any, ...]]) -> list[ParameterSet]:
    return [
        pytest.param(*case, id=name, marks=() if name in QUICK else pytest.mark.prove) for name, case in cases.items()
    ]


@pytest.mark.parametrize(("model", "ltl", "definitions"), params({named(*case): case for case in HOLDS}))
def test_the_model_holds(model: str, ltl: str, definitions: Definitions, tmp_path: Path) -> None:
    verdict = check(model, ltl, definitions, tmp_path, large=(model, ltl) == ("batch.pml", "safe"))

    assert verdict.broken is None, verdict.run


@pytest.mark.prove
@pytest.mark.parametrize(("model", "ltl", "definitions"), HOLDS_STILL, ids=[named(*case) for case in HOLDS_STILL])
def test_one_of_two_protections_is_enough(model: str, ltl: str, definitions: Definitions, tmp_path: Path) -> None:
    verdict = check(model, ltl, definitions, tmp_path)

    assert verdict.broken is None, verdict.run


@pytest.mark.parametrize(
    ("model", "definitions", "ltl", "how"),
    params({named(case[0], case[1][0], case[2]): case for case in BROKEN}),
)
def test_a_broken_variant_is_caught(model: str, definitions: Definitions, ltl: str, how: str, tmp_path: Path) -> None:
    assert check(model, ltl, definitions, tmp_path).broken == how


@pytest.mark.prove
@pytest.mark.parametrize(("model", "ltl", "definitions"), REACHED, ids=[ltl for _, ltl, _ in REACHED])
def test_the_model_goes_where_its_properties_matter(
    model: str, ltl: str, definitions: Definitions, tmp_path: Path
) -> None:
    assert check(model, ltl, definitions, tmp_path).broken == STATE


@pytest.mark.parametrize("model", sorted(path.name for path in MODELS.glob("*.pml")))
def test_every_variant_is_tried(model: str) -> None:
    tried = {name for case in BROKEN if case[0] == model for name in case[1]}

    assert definitions_in(model) - BUDGETS <= tried
