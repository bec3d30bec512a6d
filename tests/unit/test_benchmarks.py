"""The pure parts of the benchmarks: what becomes of samples, and the ledger that every run is checked by."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import limits
from benchmarks.catalogue import ENTRIES
from benchmarks.chart import Bar, Panel, chart, drawn
from benchmarks.environments import requirements_of
from benchmarks.kit import ledger as ledger_module
from benchmarks.kit.ledger import LEDGER_VARIABLE, Ledger, note
from benchmarks.measure import (
    FIGURES,
    CallFailed,
    Cannot,
    Turn,
    end_rates,
    middle,
    per_job,
    percentile,
    rate,
    turns,
    visit,
)
from benchmarks.report import BEGIN, END, TABLES, as_json, cell, merged, tables, text_of, write_docs

DRAIN = TABLES[1].columns[0]
ONE, TWO, THREE = ENTRIES[:3]


def sample(contender: str, figure: str, **facts: Any) -> dict[str, Any]:
    return {"contender": contender, "figure": figure, "round": 0, "ledger": "exact", **facts}


def drained(contender: str, seconds: float) -> dict[str, Any]:
    cpu = {"worker_cpu_seconds": 0.05, "server_cpu_seconds": None}
    return sample(contender, "drain_1", count=1000, seconds=seconds, **cpu)


def report_of(*samples: dict[str, Any]) -> dict[str, Any]:
    return {
        "machine": {"processor": "one core"},
        "sizes": {"jobs": 1000},
        "rounds": 3,
        "contenders": {"ours": {"title": "Ours"}, "theirs": {"title": "Theirs & co"}},
        "servers": {"postgres": {"version": "15.1", "settings": {"fsync": "on"}}},
        "samples": list(samples),
    }


def test_the_median_ignores_missing_values() -> None:
    assert middle([3.0, None, 1.0, 2.0]) == 2.0
    assert middle([None]) is None


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(1, 101)]

    assert percentile(values, 0.50) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([7.0], 0.99) == 7


def test_speed_and_cpu_time_per_job_come_from_the_same_count() -> None:
    facts = {"count": 200, "seconds": 4.0, "worker_cpu_seconds": 0.1, "server_cpu_seconds": None}

    assert rate(facts) == 50
    assert per_job(facts, "worker_cpu_seconds") == pytest.approx(500)
    assert per_job(facts, "server_cpu_seconds") is None
    assert rate({"count": 0, "seconds": 0.0}) is None


def test_the_ends_of_a_drain_are_measured_apart() -> None:
    slowing = [[0.0, 0], [10.0, 1000], [50.0, 3000], [90.0, 3500], [100.0, 3510]]

    assert end_rates(slowing) == (100, 1)
    assert end_rates([[0.0, 0], [1.0, 10]]) is None


def test_contenders_take_turns_and_another_begins_each_round() -> None:
    order = [(turn.round, turn.entry) for turn in turns([ONE, TWO, THREE], ["latency"], 2)]

    assert order == [(0, ONE), (0, TWO), (0, THREE), (1, TWO), (1, THREE), (1, ONE)]


def test_all_have_had_their_turn_at_a_figure_before_the_next_one() -> None:
    order = [turn.figure.keys for turn in turns([ONE, TWO], ["latency", "idle"], 1)]

    assert order == [("latency",), ("latency",), ("idle",), ("idle",)]


def test_a_visit_keeps_what_it_measured_before_it_failed() -> None:
    turn = Turn(0, FIGURES["drain"][0], ONE)

    def figures() -> Iterator[tuple[str, dict[str, Any]]]:
        yield "enqueue_bulk", {"count": 5}
        raise CallFailed("drain: the worker died")

    done, failed = visit(turn, figures)

    assert (done["figure"], done["count"]) == ("enqueue_bulk", 5)
    assert (failed["figure"], failed["error"]) == ("drain_1", "drain: the worker died")


def test_a_missing_feature_is_distinguished_from_a_failure() -> None:
    def figures() -> Iterator[tuple[str, dict[str, Any]]]:
        yield from ()
        raise Cannot("it has none")

    [cannot] = visit(Turn(0, FIGURES["history"][0], ONE), figures)

    assert cannot["cannot"] == "it has none"
    assert "error" not in cannot


def test_a_cell_shows_the_median_of_the_rounds() -> None:
    report = report_of(drained("ours", 1.0), drained("ours", 0.1), drained("ours", 0.5))

    assert cell(report, "ours", DRAIN) == "2,000"


def test_a_wrong_ledger_leaves_no_number() -> None:
    wrong = {**drained("ours", 0.001), "ledger": "1 jobs ran more than once"}

    report = report_of(drained("ours", 1.0), wrong)

    assert cell(report, "ours", DRAIN) == "ledger wrong"
    assert "1 jobs ran more than once" in tables(report)


def test_a_failure_in_one_round_is_not_hidden_by_the_others() -> None:
    failed = {"contender": "ours", "figure": "drain_1", "round": 1, "error": "it hung"}

    report = report_of(drained("ours", 1.0), failed)

    assert cell(report, "ours", DRAIN) == "failed"
    assert "Ours, drain_1: it hung" in tables(report)


def test_tables_name_reasons_versions_and_machine() -> None:
    cannot = {"contender": "theirs", "figure": "history", "round": 0, "cannot": "it keeps no ended jobs"}
    report = report_of(drained("ours", 0.5), cannot)
    report["contenders"]["ours"] |= {"versions": {"ours": "1.2"}, "settings": {"worker": "as it comes"}}
    report["contenders"]["late"] = {"title": "Late", "absent": "needs Python 3.99"}

    text = tables(report)

    assert "| Ours | 2,000 | 50 | — |" in text
    assert "- Theirs & co, history: it keeps no ended jobs" in text
    assert "- Late: needs Python 3.99" in text
    assert "**Ours** (ours 1.2). worker: as it comes." in text
    assert "**postgres** 15.1: fsync = on." in text
    assert "processor: one core" in text


def test_the_terminal_shows_only_what_was_measured() -> None:
    shown = text_of(report_of(drained("ours", 0.5)))

    assert "Drain" in shown
    assert "Growth" not in shown  # its only sample is there to compare with
    assert "Theirs" not in shown


def test_runs_can_be_merged() -> None:
    first, second = report_of(drained("ours", 1.0)), report_of(drained("theirs", 1.0))
    second["machine"] = {"processor": "two cores"}

    whole = merged([first, second])

    assert [entry["contender"] for entry in whole["samples"]] == ["ours", "theirs"]
    assert whole["machine"] == {"processor": "two cores"}


def test_saved_reports_are_json_with_one_sample_a_line() -> None:
    report = report_of(drained("ours", 1.0), drained("theirs", 2.0))

    text = as_json(report)

    assert json.loads(text) == report
    assert len([line for line in text.splitlines() if '"drain_1"' in line]) == 2


def test_documentation_keeps_what_stands_around_the_results(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"Before.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")

    for _ in range(2):
        write_docs(report_of(drained("ours", 0.5)), page, "<svg/>")

    text = page.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
    assert "old" not in text
    assert text.count("| Ours | 2,000 |") == 1
    assert (tmp_path / "benchmarks.svg").read_text() == "<svg/>"
    assert json.loads((tmp_path / "benchmarks.json").read_text())["rounds"] == 3


def test_documentation_without_a_place_for_results_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text("Nothing here.\n")

    with pytest.raises(ValueError, match="no place for results"):
        write_docs(report_of(drained("ours", 0.5)), page, "<svg/>")

    assert page.read_text() == "Nothing here.\n"


def test_the_page_in_the_documentation_has_a_place_for_results() -> None:
    text = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")

    assert text.index(BEGIN) < text.index(END)


def test_the_chart_is_xml_and_scales_the_longest_bar_to_its_width() -> None:
    picture = drawn([Panel("a < b", (Bar("slow & old", (10.0,)), Bar("quick", (40.0, 20.0))))])

    root = ET.fromstring(picture)  # noqa: S314 - made here
    widths = [float(bar.attrib["width"]) for bar in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths == pytest.approx([widths[1] / 4, widths[1], widths[1] / 2], abs=0.1)
    assert "slow &amp; old" in picture


def test_a_report_without_speed_has_an_empty_chart() -> None:
    assert "<rect" not in chart(report_of())


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    ledger = Ledger(tmp_path / "ledger", 4)
    monkeypatch.setenv(LEDGER_VARIABLE, str(ledger.directory))
    monkeypatch.setattr(ledger_module, "_pens", {})
    return ledger


def test_a_ledger_where_each_job_ran_once_has_no_faults(ledger: Ledger) -> None:
    for number in range(4):
        note(number)

    assert ledger.faults(left=0, ended=4) == []
    assert (ledger.begun, ledger.processes) == (4, 1)
    assert ledger.begun_at(0) == ledger.first_begun_at() <= ledger.last_begun_at()


def test_a_job_that_ran_twice_is_a_fault_even_if_the_count_fits(ledger: Ledger) -> None:
    for number in (0, 1, 1, 3):
        note(number)

    repeated, missing = ledger.faults(left=0, ended=None)

    assert repeated == "1 jobs ran more than once, such as [1]"
    assert missing == "3 of 4 jobs ran and 0 are left in the store"


def test_jobs_left_in_the_store_must_not_have_run(ledger: Ledger) -> None:
    note(0)
    note(1)

    assert ledger.faults(left=2, ended=2) == []
    assert ledger.faults(left=3, ended=2) == ["2 of 4 jobs ran and 3 are left in the store"]
    assert ledger.faults(left=2, ended=1) == ["2 jobs ran but 1 ended in the store"]


def test_only_an_interrupted_run_may_leave_jobs_that_ran(ledger: Ledger) -> None:
    note(0)
    note(1)

    assert ledger.faults(left=3, ended=1, interrupted=True) == []
    assert ledger.unsettled(left=3) == 1
    assert ledger.faults(left=1, ended=2, interrupted=True) == ["2 of 4 jobs ran and 1 are left in the store"]
    assert ledger.faults(left=2, ended=3, interrupted=True) == ["2 jobs ran but 3 ended in the store"]


def test_the_bare_limit_runs_the_products_own_statements() -> None:
    claim_and_end, insert = limits.pgbench_claim_and_end(), limits.pgbench_insert()

    assert "for update skip locked" in claim_and_end
    assert "delete from stagepost_job" in claim_and_end
    assert "insert into stagepost_job_history" in claim_and_end
    assert "insert into stagepost_job (" in insert
    assert ":jobs" not in insert


def test_every_contender_from_the_package_index_is_pinned() -> None:
    missing = [entry.name for entry in ENTRIES if entry.requirements and not requirements_of(entry).exists()]

    assert missing == []
