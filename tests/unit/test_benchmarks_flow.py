"""The pure parts of the figures about jobs that are in each other's way, and of putting their runs into a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import _options, _sizes
from benchmarks.catalogue import ENTRIES
from benchmarks.contestant import QUICK, Sizes
from benchmarks.kit import flow as stages
from benchmarks.kit import ledger as ledger_module
from benchmarks.kit.contender import Unknown
from benchmarks.kit.counters import Counters
from benchmarks.kit.ledger import LEDGER_VARIABLE, Ledger, note
from benchmarks.measure import FIGURES, Turn, is_settled
from benchmarks.report import TABLES, Table, cell, merged, tables, text_of

ROOT = Path(__file__).parents[2]
MIXED, KEYS, RATED, UNKNOWN = TABLES[-4:]


def sample(contender: str, figure: str, **facts: Any) -> dict[str, Any]:
    return {"contender": contender, "figure": figure, "round": 0, "ledger": "exact", **facts}


def drained(figure: str, *, seconds: float, worker: float, server: float | None = None, **more: Any) -> dict[str, Any]:
    return sample(
        "ours", figure, count=1000, seconds=seconds, worker_cpu_seconds=worker, server_cpu_seconds=server, **more
    )


def waited(figure: str, milliseconds: Sequence[float], not_begun: int = 0, **more: Any) -> dict[str, Any]:
    facts = {"milliseconds": list(milliseconds), "not_begun": not_begun, "limit_seconds": 15.0}
    return sample("ours", figure, count=len(milliseconds), seconds=2.5, **facts, **more)


def report_of(*samples: dict[str, Any], date: str = "today") -> dict[str, Any]:
    return {
        "machine": {"date": date},
        "sizes": {"jobs": 1000},
        "rounds": 1,
        "contenders": {"ours": {"title": "Ours"}, "theirs": {"title": "Theirs"}},
        "servers": {},
        "samples": list(samples),
    }


def row_of(report: dict[str, Any], table: Table, contender: str = "ours") -> list[str]:
    return [cell(report, contender, column) for column in table.columns]


def test_a_wait_lasts_from_a_jobs_own_request_to_its_handler() -> None:
    begun = {7: 10.25, 8: 10.5, 9: None}

    facts = stages.waits({7: 10.0, 8: 10.4, 9: 10.4}, begun.__getitem__)

    assert facts == {"milliseconds": [250.0, 100.0], "not_begun": 1}


def test_the_ratio_of_mixed_is_the_p99_with_prefetch_over_the_p99_without() -> None:
    with_prefetch = waited("mixed", [10.0] * 50 + [3000.0] * 50)
    without = waited("mixed_no_prefetch", [10.0] * 98 + [30.0] * 2)

    assert row_of(report_of(with_prefetch, without), MIXED) == ["10.0", "3,000.0", "2.50", "10.0", "30.0", "100.0"]


def test_a_job_that_did_not_start_in_time_counts_as_waiting_longer() -> None:
    report = report_of(waited("mixed", [10.0] * 98, not_begun=2))

    assert row_of(report, MIXED)[:2] == ["10.0", "> 15,000"]


def test_the_cost_of_keys_is_the_cpu_time_of_all_parts_over_that_of_the_plain_drain() -> None:
    report = report_of(
        drained("keys_plain", seconds=0.5, worker=0.03, server=0.02),
        drained("keys", seconds=2.0, worker=0.06, server=0.09),
        drained("keys_each", seconds=1.0, worker=0.03, server=0.05, broker_cpu_seconds=0.02),
    )

    assert row_of(report, KEYS) == ["2,000", "50", "500", "150", "3.0", "1,000", "100", "2.0"]


def test_a_wrong_ledger_leaves_no_ratio() -> None:
    wrong = {**drained("keys", seconds=2.0, worker=0.06), "ledger": "1 jobs ran more than once, such as [3]"}

    row = row_of(report_of(drained("keys_plain", seconds=0.5, worker=0.03), wrong), KEYS)

    assert row[2:5] == ["ledger wrong", "ledger wrong", "—"]


def test_a_missing_feature_of_a_contender_has_a_row_that_says_so() -> None:
    cannot = {"contender": "theirs", "figure": "rated", "round": 0, "cannot": "it has no rate limit per task"}
    facts = {"worker_cpu_seconds": 0.05, "server_cpu_seconds": None, "transactions": 100}
    rated = sample("ours", "rated", count=5, seconds=2.5, milliseconds=[4.0], not_begun=0, limit_seconds=15.0, **facts)

    text = tables(report_of(rated, cannot))

    assert "| Ours | 4.0 | 2.0 | 40.0 | 2.0 | — |" in text
    assert "| Theirs | not offered | not offered | — | — | — |" in text
    assert "- Theirs, rated: it has no rate limit per task" in text


def test_a_contender_that_was_not_measured_has_no_row() -> None:
    assert "Theirs" not in text_of(report_of(waited("mixed", [1.0])))


def test_unknown_jobs_are_reported_with_what_happens_to_them() -> None:
    facts: dict[str, Any] = {"unknown": 5000, "unknown_left": 12, "fate": "dropped", "statement_seconds": 0.002}
    report = report_of(waited("unknown", [5.0, 7.0], server_cpu_seconds=0.001, **facts))

    assert row_of(report, UNKNOWN) == ["5,000", "dropped", "12", "5.0", "7.0", "1,000", "500"]


def test_counters_are_subtracted() -> None:
    spent = Counters(150, 2.75).since(Counters(100, 2.5))

    assert spent == {"transactions": 50, "statement_seconds": 0.25}


def test_only_postgresql_has_counters() -> None:
    assert Counters.read("sqlite:///jobs.db") is None


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    ledger = Ledger(tmp_path / "ledger", 4)
    monkeypatch.setenv(LEDGER_VARIABLE, str(ledger.directory))
    monkeypatch.setattr(ledger_module, "_pens", {})
    for number in range(3):
        note(number)
    return ledger


def test_a_ledger_with_room_for_more_jobs_is_checked_for_those_that_were_asked_for(ledger: Ledger) -> None:
    assert ledger.faults(left=0, ended=3) == ["3 of 4 jobs ran and 0 are left in the store"]

    ledger.jobs = 3

    assert ledger.faults(left=0, ended=3) == []
    assert ledger.unsettled(left=0) == 0


def test_unknown_jobs_in_the_queue_are_not_taken_for_plain_ones(ledger: Ledger) -> None:
    facts, lost = stages.left_of_unknown(ledger, 120, Unknown(left=100, ended=20), left=101)

    assert (facts, lost) == ({"unknown_left": 100, "unknown_ended": 20}, "")
    assert ledger.others_left == 100


def test_an_unknown_job_missing_from_a_store_that_should_keep_it_is_a_fault(ledger: Ledger) -> None:
    _, lost = stages.left_of_unknown(ledger, 120, Unknown(left=99, ended=20), left=99)

    assert lost == "1 of 120 jobs of an unknown task are missing"


def test_where_a_store_cannot_tell_them_apart_plain_jobs_that_did_not_run_must_be_left(ledger: Ledger) -> None:
    facts, _ = stages.left_of_unknown(ledger, 120, None, left=6)

    assert facts == {"unknown_left": 5}
    assert ledger.faults(left=6 - ledger.others_left, ended=None, interrupted=True) == []

    stages.left_of_unknown(ledger, 120, None, left=0)

    assert ledger.faults(left=0 - ledger.others_left, ended=None, interrupted=True) != []


def test_a_visit_is_skipped_if_an_earlier_one_has_shown_that_it_cannot_succeed() -> None:
    plain, keys, _ = (Turn(0, figure, ENTRIES[0]) for figure in FIGURES["keys"])
    name = ENTRIES[0].name
    cannot = [{"contender": name, "round": 0, "figure": key, "cannot": "no"} for key in plain.figure.keys]

    assert is_settled(keys, cannot)
    assert not is_settled(Turn(1, keys.figure, ENTRIES[0]), cannot)
    assert not is_settled(Turn(0, keys.figure, ENTRIES[1]), cannot)
    assert not is_settled(keys, [sample(name, "keys_plain")])


def test_a_contender_without_a_bulk_call_is_drained_all_the_same() -> None:
    second = Turn(0, FIGURES["drain"][1], ENTRIES[0])

    assert not is_settled(
        second, [{"contender": ENTRIES[0].name, "round": 0, "figure": "enqueue_bulk", "cannot": "no"}]
    )


def test_every_size_is_an_option_and_smaller_in_a_quick_run() -> None:
    assert _sizes(_options(["--quick", "--keyed-jobs", "7", "--wait-seconds", "3"])).keyed_jobs == 7

    large, small = Sizes(), QUICK
    assert all(getattr(small, field.name) <= getattr(large, field.name) for field in fields(Sizes))


def test_every_contender_says_what_happens_to_unknown_jobs() -> None:
    programs = {entry.program for entry in ENTRIES}
    sources = {name: (ROOT / "benchmarks" / "contenders" / f"{name}.py").read_text() for name in programs}

    assert [name for name, source in sources.items() if "fate_of_unknown = " not in source] == []


def test_merged_runs_keep_their_own_machine_and_sizes() -> None:
    old = report_of(drained("drain_1", seconds=1.0, worker=0.1), date="monday")
    new = report_of(waited("mixed", [1.0]), date="tuesday")

    text = tables(merged([merged([old, report_of(date="sunday")]), new]))

    runs = text[text.index("### Machine and sizes") :].split("Run ")[1:]
    assert [run.splitlines()[0] for run in runs] == ["1: drain_1.", "3: mixed."]
    assert ["- date: monday" in runs[0], "- date: tuesday" in runs[1]] == [True, True]


def test_samples_of_several_runs_count_together_unless_they_are_to_be_replaced() -> None:
    kept = sample("theirs", "mixed", milliseconds=[9.0], not_begun=0, count=1, seconds=1.0)
    old = report_of(waited("mixed", [1.0]), waited("unknown", [4.0]), kept)
    new = report_of(waited("mixed", [3.0]))

    def values(report: dict[str, Any]) -> list[float]:
        return [found["milliseconds"][0] for found in report["samples"]]

    assert values(merged([old, new])) == [1.0, 4.0, 9.0, 3.0]
    assert values(merged([old, new], replace=True)) == [4.0, 9.0, 3.0]


def test_a_contender_that_was_absent_once_keeps_what_was_known_of_it() -> None:
    old, new = report_of(), report_of()
    old["contenders"]["ours"] |= {"versions": {"ours": "1.2"}}
    new["contenders"]["ours"] |= {"absent": "its server is missing"}

    assert merged([old, new])["contenders"]["ours"]["versions"] == {"ours": "1.2"}
    assert "absent" not in merged([new, old])["contenders"]["ours"]


def test_new_figures_do_not_displace_those_in_the_documentation() -> None:
    old = json.loads((ROOT / "docs" / "benchmarks.json").read_text(encoding="utf-8"))
    new = report_of(waited("mixed", [1.0, 2.0]), date="the day of mixed")
    new["contenders"] = {"ours": {"title": "Ours"}}

    text = tables(merged([old, new]))

    def results(page: str) -> list[str]:
        return [line for line in page.splitlines() if line.startswith("| ")]

    assert set(results(tables(old))) <= set(results(text))
    assert "| Ours | 1.0 | 2.0 | 2.50 |" in text
    assert old["machine"]["date"] in text
    assert "the day of mixed" in text
