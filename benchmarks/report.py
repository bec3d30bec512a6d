"""Turns samples into tables: medians per contender, what could not be measured and why, versions and settings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import end_rates, middle, per_job, percentile, rate

__all__ = ["TABLES", "Column", "Table", "as_json", "cell", "merged", "tables", "text_of", "value_of", "write_docs"]

Facts = Mapping[str, Any]
Report = dict[str, Any]

NOTHING = "—"
BEGIN, END = "<!-- results: written by ./dev bench --write-docs -->", "<!-- end of results -->"
SHOWN_ERROR = 160


@dataclass(frozen=True)
class Column:
    """One number per contender: the figure it is taken from, how to read it from a sample, how to write it."""

    title: str
    figure: str
    read: Callable[[Facts], float | None]
    form: str = "{:,.0f}"
    is_context: bool = False
    """It is there to compare with, and alone no reason to show a row."""


@dataclass(frozen=True)
class Table:
    """Columns that are read together."""

    title: str
    note: str
    columns: tuple[Column, ...]


def _cpu(key: str) -> Callable[[Facts], float | None]:
    return lambda facts: per_job(facts, key)


def _milliseconds(share: float) -> Callable[[Facts], float | None]:
    return lambda facts: percentile(facts["milliseconds"], share) if facts.get("milliseconds") else None


def _share_of_a_core(key: str) -> Callable[[Facts], float | None]:
    return lambda facts: None if facts.get(key) is None else facts[key] / facts["seconds"] * 100


def _end_rate(which: int) -> Callable[[Facts], float | None]:
    def read(facts: Facts) -> float | None:
        rates = end_rates(facts.get("curve", ()))
        return None if rates is None else rates[which]

    return read


def _speed(title: str, figure: str, user: str) -> tuple[Column, Column, Column]:
    return (
        Column(f"{title}, jobs/s", figure, rate),
        Column(f"{user} µs", figure, _cpu("worker_cpu_seconds")),
        Column("server µs", figure, _cpu("server_cpu_seconds")),
    )


def _broker(title: str, figure: str) -> Column:
    return Column(f"{title}, broker µs", figure, _cpu("broker_cpu_seconds"))


TABLES: tuple[Table, ...] = (
    Table(
        "Enqueue",
        "One client; each call returns when the job is stored for good. µs are CPU time per job.",
        (*_speed("one by one", "enqueue_one", "client"), *_speed("in bulk", "enqueue_bulk", "client")),
    ),
    Table(
        "Drain",
        "Jobs that do nothing, until the store has them as ended. µs are CPU time per job.",
        (*_speed("one process", "drain_1", "worker"), *_speed("two processes", "drain_2", "worker")),
    ),
    Table(
        "A broker beside the database",
        "What it costs above, where the database keeps the jobs and the broker carries them; and jobs that are stored "
        "and not sent, until they are ended, by one process that sends, takes and runs them.",
        (
            _broker("one by one", "enqueue_one"),
            _broker("in bulk", "enqueue_bulk"),
            _broker("drain", "drain_1"),
            Column("stored to ended, jobs/s", "through", rate),
            Column("worker µs", "through", _cpu("worker_cpu_seconds")),
            Column("server µs", "through", _cpu("server_cpu_seconds")),
            _broker("stored to ended", "through"),
        ),
    ),
    Table(
        "Latency, sleeping jobs, idling",
        "From the request to the handler on an idle worker; 1,000 jobs that sleep 100 ms at concurrency 100, ideal "
        "time / time; a worker with nothing to do, in memory of its own and per cent of a core.",
        (
            Column("p50, ms", "latency", _milliseconds(0.50), "{:,.1f}"),
            Column("p99, ms", "latency", _milliseconds(0.99), "{:,.1f}"),
            Column("sleep efficiency", "sleep", lambda facts: facts["efficiency"], "{:.0%}"),
            Column("idle MB", "idle", lambda facts: facts["memory_bytes"] / 1e6),
            Column("idle worker CPU, %", "idle", _share_of_a_core("worker_cpu_seconds"), "{:.2f}"),
            Column("idle server CPU, %", "idle", _share_of_a_core("server_cpu_seconds"), "{:.2f}"),
        ),
    ),
    Table(
        "Growth",
        "Jobs/s of one process: behind a small and a large backlog, with a long history, and in the first and last "
        "tenth of a drain during which another session holds a transaction open.",
        (
            Column("small backlog", "backlog_small", rate),
            Column("large backlog", "backlog_large", rate),
            Column("empty history", "drain_1", rate, is_context=True),
            Column("long history", "history", rate),
            Column("held open, first", "held", _end_rate(0)),
            Column("held open, last", "held", _end_rate(1)),
            Column("held open, server µs", "held", _cpu("server_cpu_seconds")),
        ),
    ),
)


def value_of(report: Report, contender: str, column: Column) -> float | None:
    """The median over the rounds of one number."""
    good = [sample for sample in _samples(report, contender, column.figure) if sample.get("ledger") == "exact"]
    return middle(column.read(sample) for sample in good)


def cell(report: Report, contender: str, column: Column) -> str:
    """What a table shows: the number, or a dash; a number whose ledger was not exact is none."""
    samples = _samples(report, contender, column.figure)
    if any(sample.get("ledger", "exact") != "exact" for sample in samples):
        return "ledger wrong"
    if any("error" in sample for sample in samples):
        return "failed"
    value = value_of(report, contender, column)
    return NOTHING if value is None else column.form.format(value)


def tables(report: Report) -> str:
    """All tables as Markdown, with the reasons for what is missing, the settings and the machine."""
    parts = [_table(report, table) for table in TABLES if _is_measured(report, table)]
    return "\n\n".join([*parts, _reasons(report), _settings(report), _machine(report)]) + "\n"


def text_of(report: Report) -> str:
    """The tables for a terminal: the same, with columns lined up."""
    return "\n\n".join(_aligned(_table(report, table)) for table in TABLES if _is_measured(report, table))


def merged(reports: Sequence[Report]) -> Report:
    """Put runs together, for figures that were measured one after the other; the newest run describes the machine."""
    whole: Report = {**reports[-1], "contenders": {}, "servers": {}, "samples": []}
    for number, report in enumerate(reports):
        whole["contenders"] |= report["contenders"]
        whole["servers"] |= report["servers"]
        whole["samples"] += [{**sample, "run": number} for sample in report["samples"]]
    return whole


def as_json(report: Report) -> str:
    """The whole report; one sample per line, so that two runs can be compared."""
    rest = json.dumps({**report, "samples": []}, indent=1, ensure_ascii=False)
    samples = ",\n  ".join(json.dumps(sample, ensure_ascii=False) for sample in report["samples"])
    return rest.replace('"samples": []', f'"samples": [\n  {samples}\n ]') + "\n"


def write_docs(report: Report, page: Path, chart: str) -> None:
    """Put results and chart into the documentation, between its two marks."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{page} has no place for results: it needs the lines {BEGIN!r} and {END!r}.")
    picture = page.with_suffix(".svg")
    picture.write_text(chart, encoding="utf-8")
    page.with_suffix(".json").write_text(as_json(report), encoding="utf-8")
    body = f"{BEGIN}\n\n![Jobs per second and CPU time per job]({picture.name})\n\n{tables(report)}\n{END}"
    page.write_text(re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: body, text, flags=re.DOTALL))


def _samples(report: Report, contender: str, figure: str) -> list[Facts]:
    return [sample for sample in report["samples"] if sample["contender"] == contender and sample["figure"] == figure]


def _is_measured(report: Report, table: Table) -> bool:
    own = [column for column in table.columns if not column.is_context]
    return any(value_of(report, name, column) is not None for name in report["contenders"] for column in own)


def _table(report: Report, table: Table) -> str:
    columns = [column for column in table.columns if any(s["figure"] == column.figure for s in report["samples"])]
    lines = [
        f"### {table.title}",
        "",
        table.note,
        "",
        _row(["", *(column.title for column in columns)]),
        _row(["---", *("---:" for _ in columns)]),
    ]
    for name, facts in report["contenders"].items():
        cells = [cell(report, name, column) for column in columns]
        own = {shown for shown, column in zip(cells, columns, strict=True) if not column.is_context}
        if own != {NOTHING}:
            lines.append(_row([facts["title"], *cells]))
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _aligned(markdown: str) -> str:
    lines = markdown.splitlines()
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    shown = [
        "  ".join(part.ljust(width) if place == 0 else part.rjust(width)
                  for place, (part, width) in enumerate(zip(row, widths, strict=True)))
        for number, row in enumerate(rows) if number != 1
    ]  # fmt: skip
    return "\n".join([*(line for line in lines if not line.startswith("|")), *shown])


def _reasons(report: Report) -> str:
    """Why a dash is a dash, once per contender and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for sample in report["samples"]:
        wrong = None if sample.get("ledger", "exact") == "exact" else f"ledger wrong: {sample['ledger']}"
        reason = sample.get("cannot") or sample.get("error") or wrong
        if reason:
            title = report["contenders"][sample["contender"]]["title"]
            reasons.setdefault((title, " ".join(reason.split())[:SHOWN_ERROR]), []).append(sample["figure"])
    lines = [
        f"- {title}, {', '.join(dict.fromkeys(figures))}: {reason}"
        for (title, reason), figures in reasons.items()
        if not title.startswith("limit")
    ]
    absent = [f"- {facts['title']}: {facts['absent']}" for facts in report["contenders"].values() if "absent" in facts]
    return "\n".join(["### What is missing, and why", "", *(lines + absent or ["Nothing."])])


def _settings(report: Report) -> str:
    lines = ["### Versions and settings", ""]
    for facts in report["contenders"].values():
        versions = ", ".join(f"{name} {number}" for name, number in facts.get("versions", {}).items())
        settings = "; ".join(f"{name}: {value}" for name, value in facts.get("settings", {}).items())
        if versions:
            lines.append(f"- **{facts['title']}** ({versions}). {settings}.")
    for name, facts in report["servers"].items():
        settings = ", ".join(f"{key} = {value}" for key, value in facts["settings"].items()) or "as it comes"
        lines.append(f"- **{name}** {facts['version']}: {settings}.")
    return "\n".join(lines)


def _machine(report: Report) -> str:
    facts = "\n".join(f"- {name}: {value}" for name, value in report["machine"].items())
    sizes = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in report["sizes"].items())
    return f"### Machine and sizes\n\n{facts}\n- sizes: {sizes}\n- rounds: {report['rounds']}"
