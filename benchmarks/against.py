"""Compares two commits of Stagepost in one run: this checkout, and an older one in a separate worktree."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.catalogue import ENTRIES, Entry
from benchmarks.environments import ROOT, STATE, EnvironmentFailed
from benchmarks.measure import Turn, turns
from benchmarks.report import Report, value_of
from benchmarks.tables import TABLES, Column

__all__ = ["FIGURES", "NAMES", "Pair", "Row", "checkout", "comparison", "paired", "paired_turns", "rows"]

FIGURES = ("drain", "latency", "enqueue")
NAMES = ("stagepost-postgres", "stagepost-mariadb", "stagepost-sqlite")
HOMES = STATE / "against"
SHOWN = 9
"""How many characters of a commit's hash are shown."""


@dataclass(frozen=True)
class Pair:
    """A contender of this checkout, and the same one of another commit."""

    new: Entry
    old: Entry


@dataclass(frozen=True)
class Row:
    """One number of both commits, as medians over the rounds, and the sorted ratios of single rounds."""

    title: str
    column: Column
    new: float
    old: float
    ratios: tuple[float, ...]


def checkout(commit: str) -> Path:
    """Create a worktree of the commit under .dev, with its own environment, or reuse an existing one."""
    name = _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    home = HOMES / name[:SHOWN]
    if not (home / "dev").exists():
        # Forced: git still lists a worktree whose folder was deleted by hand.
        _git("worktree", "add", "--force", "--detach", str(home), name)
    done = subprocess.run([home / "dev", "setup"], cwd=home, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentFailed(f"./dev setup failed in {home}: {done.stderr.strip()[-500:]}")
    return home


def paired(names: Sequence[str], home: Path, *, is_own_program: bool = False) -> list[Pair]:
    """Pair each contender with the other commit. Only Stagepost itself has other commits."""
    chosen = [entry for entry in ENTRIES if entry.name in names and not entry.requirements]
    if others := set(names) - {entry.name for entry in chosen}:
        raise EnvironmentFailed(f"--against compares commits of Stagepost, and cannot run {', '.join(sorted(others))}.")
    return [
        Pair(
            entry,
            replace(
                entry,
                name=f"{entry.name}@{home.name}",
                title=f"{entry.title} at {home.name}",
                home=home,
                is_own_program=is_own_program,
            ),
        )
        for entry in chosen
    ]


def paired_turns(pairs: Sequence[Pair], figures: Sequence[str], rounds: int) -> Iterator[Turn]:
    """Run the two of a pair one after the other; in every second round the older one starts."""
    entries = [entry for pair in pairs for entry in (pair.new, pair.old)]
    for number in range(rounds):
        order = entries[::-1] if number % 2 else entries
        yield from (replace(turn, round=number) for turn in turns(order, figures, 1))


def rows(report: Report, pairs: Sequence[Pair]) -> list[Row]:
    """Compare every number that both have. A sample with a wrong ledger is ignored."""
    found = []
    for pair in pairs:
        for column in dict.fromkeys(column for table in TABLES for column in table.numbers if not column.is_context):
            new, old = (value_of(report, entry.name, column) for entry in (pair.new, pair.old))
            if new is not None and old and math.isfinite(new) and math.isfinite(old):
                found.append(Row(pair.new.title, column, new, old, _ratios(report, pair, column)))
    return found


def comparison(report: Report, pairs: Sequence[Pair]) -> str:
    """Format the rows as a table. A ratio new / old below 1 means slower for jobs/s, and cheaper for times."""
    lines = [
        "### New / old",
        "",
        "|  | figure | number | new | old | new / old | single rounds |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows(report, pairs):
        shown = [row.column.form.format(value) for value in (row.new, row.old)]
        spread = f"{row.ratios[0]:.2f} to {row.ratios[-1]:.2f}" if row.ratios else "—"
        cells = [row.title, row.column.figure, row.column.title, *shown, f"{row.new / row.old:.2f}", spread]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratios(report: Report, pair: Pair, column: Column) -> tuple[float, ...]:
    """New / old within each round that has both."""
    found = []
    for number in sorted({sample["round"] for sample in report["samples"]}):
        one = {**report, "samples": [sample for sample in report["samples"] if sample["round"] == number]}
        new, old = (value_of(one, entry.name, column) for entry in (pair.new, pair.old))
        if new is not None and old:
            found.append(new / old)
    return tuple(sorted(found))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentFailed(f"git {' '.join(arguments)} failed: {done.stderr.strip() or 'no such commit'}")
    return done.stdout.strip()
