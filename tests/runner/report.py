"""The report at the end of a run: totals and the slowest files, or the table of the proof."""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.runner.piece import Finished, Run
from tests.runner.screen import minutes

SLOWEST = 5
MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One file of tests, or one command, in the table of the proof."""

    part: str
    what: str
    tests: int
    iterations: dict[str, int]
    """What the tests counted themselves, such as kills."""
    seed: str
    result: str
    seconds: float


def totals(runs: Sequence[Run], *, seconds: float) -> str:
    """The last lines of a run, closed by the counts alone on their line."""
    slowest = seconds_by_file(runs).most_common(SLOWEST)
    lines = [f"{minutes(spent):>6}  {file}" for file, spent in slowest]
    failed = [run.piece.name for run in runs if not run.passed]
    counts = {outcome: sum(run.count(outcome) for run in runs) for outcome in ("passed", "failed", "skipped")}
    cpu = cpu_seconds()
    peak = max((run.peak_bytes for run in runs), default=0) // MIB
    commands = [run for run in runs if run.total is None]
    counts["passed"] += sum(run.passed for run in commands)
    counts["failed"] += sum(not run.passed for run in commands)
    return "\n".join(
        [
            "",
            *(["Slowest files:", *lines] if lines else []),
            f"Total: {minutes(seconds)}; CPU time without shared servers: {minutes(cpu)}; largest process: {peak} MiB",
            *([f"FAILED: {', '.join(failed)}"] if failed else []),
            f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped",
        ]
    )


def cpu_seconds() -> float:
    """The resources used by all ended processes of this run, including their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_by_file(runs: Iterable[Run]) -> Counter[str]:
    spent: Counter[str] = Counter()
    for run in runs:
        for test in run.finished:
            spent[test.file] += test.seconds  # type: ignore[assignment]
    return spent


def rows_of(runs: Iterable[Run], parts: Mapping[str, str], *, seed: str) -> list[Row]:
    """A row for each file of tests and for each command; `parts` names the part of each piece."""
    rows: list[Row] = []
    for run in runs:
        part = parts[run.piece.name]
        by_file: dict[str, list[Finished]] = {}
        for test in run.finished:
            by_file.setdefault(test.file, []).append(test)
        rows += [_row(part, file, tests, seed) for file, tests in by_file.items()]
        if not by_file or not run.passed:
            result = "passed" if run.passed else "FAILED"
            rows.append(Row(part, run.piece.name, len(run.finished), {}, "", result, round(run.seconds or 0, 1)))
    return rows


def _row(part: str, file: str, tests: Sequence[Finished], seed: str) -> Row:
    iterations: Counter[str] = Counter()
    for test in tests:
        iterations.update({name: value for name, value in test.properties.items() if isinstance(value, int)})
    outcomes = Counter(test.outcome for test in tests)
    result = "FAILED" if outcomes["failed"] else "passed" if outcomes["passed"] else "skipped"
    return Row(part, file, len(tests), dict(iterations), seed, result, round(sum(test.seconds for test in tests), 1))


def table_of(rows: Sequence[Row]) -> str:
    """The rows for people."""
    heads = ("part", "what ran", "tests", "iterations", "seed", "result", "time")
    cells = [
        (
            row.part,
            row.what,
            str(row.tests or ""),
            ", ".join(f"{number} {name}" for name, number in row.iterations.items()),
            row.seed,
            row.result,
            minutes(row.seconds),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [heads, *cells]) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in [heads, *cells]]
    return "\n".join(line.rstrip() for line in lines)


def write_json(path: Path, rows: Sequence[Row], **facts: Any) -> None:
    """The same for programs; written whole or not at all."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    draft.replace(path)
