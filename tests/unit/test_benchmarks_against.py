"""How two commits of Stagepost take turns in one run, and what is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import _options
from benchmarks.against import FIGURES, NAMES, Pair, comparison, paired, paired_turns, rows
from benchmarks.contestant import QUICK, Contestant
from benchmarks.environments import EnvironmentFailed, python_of
from benchmarks.servers import Address

HOME = Path("/somewhere/0123abcde")


def drained(contender: str, number: int, seconds: float, **more: Any) -> dict[str, Any]:
    facts = {"count": 1000, "seconds": seconds, "worker_cpu_seconds": None, "server_cpu_seconds": None}
    return {"contender": contender, "figure": "drain_1", "round": number, "ledger": "exact", **facts, **more}


def report_of(*samples: dict[str, Any]) -> dict[str, Any]:
    return {"contenders": {}, "samples": list(samples)}


@pytest.fixture
def pair() -> Pair:
    [pair] = paired(["stagepost-sqlite"], HOME)
    return pair


def test_the_older_commit_starts_every_second_round() -> None:
    pairs = paired(["stagepost-postgres", "stagepost-sqlite"], HOME)

    order = [(turn.round, turn.entry.name) for turn in paired_turns(pairs, ["latency"], 2)]

    postgres, sqlite = "stagepost-postgres", "stagepost-sqlite"
    assert order == [
        (0, postgres), (0, f"{postgres}@0123abcde"), (0, sqlite), (0, f"{sqlite}@0123abcde"),
        (1, f"{sqlite}@0123abcde"), (1, sqlite), (1, f"{postgres}@0123abcde"), (1, postgres),
    ]  # fmt: skip


def test_the_ratio_of_the_medians_is_shown_with_the_ratios_of_the_rounds(pair: Pair) -> None:
    new, old = pair.new.name, pair.old.name
    seconds = [(1.0, 2.0), (2.0, 1.0), (1.0, 4.0)]
    samples = [
        sample
        for number, (ours, theirs) in enumerate(seconds)
        for sample in (drained(new, number, ours), drained(old, number, theirs))
    ]

    [row] = rows(report_of(*samples), [pair])

    assert (row.new, row.old) == (1000, 500)
    assert row.ratios == (0.5, 2.0, 4.0)
    assert "| 1,000 | 500 | 2.00 | 0.50 to 4.00 |" in comparison(report_of(*samples), [pair])


def test_a_number_that_only_one_commit_has_is_not_compared(pair: Pair) -> None:
    wrong = drained(pair.old.name, 0, 1.0, ledger="1 jobs ran more than once, such as [3]")

    assert rows(report_of(drained(pair.new.name, 0, 1.0), wrong), [pair]) == []


def test_only_stagepost_has_another_commit() -> None:
    with pytest.raises(EnvironmentFailed, match="cannot run limit-sqlite, pgqueuer"):
        paired(["stagepost-sqlite", "pgqueuer", "limit-sqlite"], HOME)


def test_the_other_commit_runs_in_its_own_environment_with_its_own_source(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    class Process:
        def __init__(self, _words: list[str], *, env: dict[str, str], **_options: object) -> None:
            seen.append(env)

        def communicate(self, **_options: object) -> tuple[str, str]:
            return "{}", ""

    monkeypatch.setattr("benchmarks.contestant.subprocess.Popen", Process)
    own = paired(["stagepost-sqlite"], HOME, is_own_program=True)[0].old
    for entry in (pair.new, pair.old, own):
        Contestant(entry, python_of(entry), Address("", ()), QUICK).call("facts")

    assert python_of(pair.old) == HOME / ".venv" / "bin" / "python"
    assert [env["PYTHONPATH"].endswith(f":{HOME}/src") for env in seen] == [False, True, True]
    assert [env["BENCH_CONTENDERS"] for env in seen] == ["", "", f"{HOME}/benchmarks/contenders"]


def test_without_names_the_usual_figures_of_all_databases_are_compared() -> None:
    options = _options(["--against", "main"])

    assert (options.figures, options.contenders) == (list(FIGURES), list(NAMES))


def test_a_comparison_of_commits_is_not_for_the_documentation() -> None:
    with pytest.raises(SystemExit):
        _options(["--against", "main", "--write-docs"])
