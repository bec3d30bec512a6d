"""Measure Stagepost beside its peers and the bare limit of its databases; see docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import against, limits, machine
from benchmarks.catalogue import ENTRIES, LIMITS, Entry
from benchmarks.chart import chart
from benchmarks.environments import ROOT, EnvironmentFailed, lock, python_of
from benchmarks.measure import (
    FIGURES,
    QUICK,
    CallFailed,
    Contestant,
    Facts,
    Sizes,
    Turn,
    is_settled,
    rate,
    turns,
    visit,
)
from benchmarks.report import Report, aligned, as_json, merged, text_of, write_docs
from benchmarks.servers import SETTINGS, Address, Servers

ALL = {entry.name: entry for entry in (*ENTRIES, *LIMITS)}
PAGE = ROOT / "docs" / "benchmarks.md"
UNFINISHED = "unfinished"
"""The name of the results during a run, so that an aborted run loses little."""
RESULTS = ROOT / ".dev" / "bench" / "results"
Order = Callable[[Sequence[Entry]], Iterator[Turn]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 if a ledger was wrong or a contender failed."""
    options = _options(arguments)
    if options.lock:
        for path in lock():
            _say(f"wrote {path.relative_to(ROOT)}")
        return 0
    if options.against:
        return _compare(options)

    def in_turns(present: Sequence[Entry]) -> Iterator[Turn]:
        return turns(present, options.figures, options.rounds, takes_part=_takes_part)

    runs = [json.loads(path.read_text()) for path in options.merge or ()]
    chosen = [ALL[name] for name in options.contenders]
    report = merged(runs, replace=options.replace) if runs else _measured(options, chosen, in_turns)
    print(text_of(report))
    return _finish(report, options)


def _compare(options: argparse.Namespace) -> int:
    """Measure this checkout and another commit in turns, and print the ratios."""
    try:
        home = against.checkout(options.against)
        pairs = against.paired(options.contenders, home, is_own_program=options.own_program)
    except EnvironmentFailed as error:
        _say(str(error))
        return 1
    chosen = [entry for pair in pairs for entry in (pair.new, pair.old)]

    def in_pairs(present: Sequence[Entry]) -> Iterator[Turn]:
        whole = [pair for pair in pairs if pair.new in present and pair.old in present]
        return against.paired_turns(whole, options.figures, options.rounds)

    report = _measured(options, chosen, in_pairs)
    print(aligned(against.comparison(report, pairs)))
    return _finish(report, options)


def _finish(report: Report, options: argparse.Namespace) -> int:
    name = _save(report, options.output, datetime.now(UTC).strftime("%Y%m%d-%H%M%S"))
    for unfinished in options.output.glob(f"{UNFINISHED}.*"):
        unfinished.unlink()
    _say(f"wrote {name}.json and {name}.svg")
    if options.write_docs:
        write_docs(report, PAGE, chart(report))
        _say(f"wrote {PAGE.relative_to(ROOT)} with its chart and data")
    return 1 if any(_is_bad(sample) for sample in report["samples"]) else 0


def _measured(options: argparse.Namespace, chosen: Sequence[Entry], order: Order) -> Report:
    """Measure until done or interrupted, and report the samples taken so far."""
    sizes = _sizes(options)
    with Servers() as servers:
        pythons, described = _prepare(chosen, servers)
        present = [entry for entry in chosen if entry.name in pythons]
        report: Report = {
            "machine": machine.describe(servers.directory),
            "sizes": asdict(sizes),
            "rounds": options.rounds,
            "contenders": described,
            "servers": {},
            "samples": [],
        }
        try:
            for turn in order(present):
                if is_settled(turn, report["samples"]):
                    continue
                report["samples"] += _take(turn, servers, pythons[turn.entry.name], sizes)
                _save(report, options.output, UNFINISHED)
        except KeyboardInterrupt:
            _say("interrupted: reporting what there is")
        services = {service for entry in present for service in (entry.service, entry.broker) if service}
        report["servers"] = {name: {"version": servers.version(name), "settings": SETTINGS[name]} for name in services}
    return report


def _prepare(chosen: Sequence[Entry], servers: Servers) -> tuple[dict[str, Path], dict[str, Any]]:
    """Create the environments. A contender that cannot take part is described with the reason."""
    pythons: dict[str, Path] = {}
    described: dict[str, Any] = {}
    for entry in chosen:
        described[entry.name] = {"title": entry.title, "service": entry.service}
        try:
            for service in filter(None, (entry.service, entry.broker)):
                if reason := servers.missing(service):
                    raise EnvironmentFailed(reason)
            python = python_of(entry)
            if entry not in LIMITS:
                contestant = Contestant(entry, python, Address("", ()), QUICK)
                described[entry.name] |= contestant.call("facts")
            pythons[entry.name] = python
        except (EnvironmentFailed, CallFailed) as error:
            _say(f"{entry.title} takes no part: {error}")
            described[entry.name]["absent"] = str(error)
    return pythons, described


def _take(turn: Turn, servers: Servers, python: Path, sizes: Sizes) -> list[Facts]:
    entry = turn.entry

    def figures() -> Iterator[tuple[str, Facts]]:
        with servers.lend(entry.service, entry.broker) as address:
            if entry in LIMITS:
                yield from limits.measure(turn.figure.keys, entry, address, sizes)
                return
            contestant = Contestant(entry, python, address, sizes)
            contestant.call("prepare")
            yield from turn.figure.measure(contestant)

    began_at = time.monotonic()
    samples = visit(turn, figures)
    for sample in samples:
        _say(f"round {turn.round + 1}, {entry.title}, {sample['figure']}: {_brief(sample)}")
    _say(f"  ({time.monotonic() - began_at:.0f} s)")
    return samples


def _brief(sample: Facts) -> str:
    for key in ("cannot", "error"):
        if key in sample:
            return f"{key}: {sample[key]}"
    speed = rate(sample)
    return f"ledger {sample['ledger']}" + (f", {speed:,.0f} jobs/s" if speed is not None and speed > 1 else "")


def _is_bad(sample: Facts) -> bool:
    return "error" in sample or sample.get("ledger", "exact") != "exact"


def _takes_part(turn: Turn) -> bool:
    return turn.entry not in LIMITS or limits.has_any(turn.figure.keys, turn.entry.service)


def _save(report: Report, directory: Path, name: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(as_json(report))
    (directory / f"{name}.svg").write_text(chart(report))
    return directory / name


def _sizes(options: argparse.Namespace) -> Sizes:
    given = {field.name: getattr(options, field.name) for field in fields(Sizes)}
    base = QUICK if options.quick else Sizes()
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("--figures", nargs="+", choices=FIGURES, metavar="FIGURE",
                        help=f"of {', '.join(FIGURES)}; all if left out")  # fmt: skip
    parser.add_argument("--contenders", nargs="+", choices=ALL, metavar="NAME",
                        help=f"of {', '.join(ALL)}; all if left out")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="how often all take their turn (3; with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that all works, measures little")
    for field in fields(Sizes):
        name = field.name.replace("_", "-")
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{field.default:,} if left out")
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="measure another commit of Stagepost beside this checkout: "
        f"{', '.join(against.FIGURES)} of {', '.join(against.NAMES)} unless others are named",
    )
    parser.add_argument("--own-program", action="store_true", help="with --against: the other commit runs its own "
                        "benchmarks/contenders/stagepost.py, for one whose API differs")  # fmt: skip
    parser.add_argument("--output", type=Path, default=RESULTS, help="where JSON and SVG go (.dev/bench/results)")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="JSON", help="measure nothing, put runs together")
    parser.add_argument(
        "--replace", action="store_true", help="with --merge: what a later run has measured again counts alone"
    )
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/benchmarks.md")
    parser.add_argument("--lock", action="store_true", help="pin the contenders' newest releases and stop")
    options = parser.parse_args(arguments)
    if options.against and (options.merge or options.write_docs):
        parser.error("--against measures and prints; the documentation compares with other systems")
    options.figures = options.figures or list(against.FIGURES if options.against else FIGURES)
    options.contenders = options.contenders or list(against.NAMES if options.against else ALL)
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def _say(text: str) -> None:
    sys.stderr.write(f"bench: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
