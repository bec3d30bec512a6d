"""Turns samples into tables: medians per contender, what could not be measured and why, versions and settings."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import middle
from benchmarks.tables import NOTHING, TABLES, Column, Facts, Ratio, Table, Text

__all__ = [
    "TABLES",
    "Column",
    "Table",
    "aligned",
    "as_json",
    "cell",
    "merged",
    "tables",
    "text_of",
    "value_of",
    "write_docs",
]

Report = dict[str, Any]

BEGIN, END = "<!-- results: written by ./dev bench --write-docs -->", "<!-- end of results -->"
SHOWN_ERROR = 160


def value_of(report: Report, contender: str, column: Column) -> float | None:
    """The median over the rounds of one number."""
    good = [sample for sample in _samples(report, contender, column.figure) if sample.get("ledger") == "exact"]
    return middle(column.read(sample) for sample in good)


def cell(report: Report, contender: str, column: Column | Ratio | Text) -> str:
    """Format a number for a table; a dash if it is missing or its ledger was wrong."""
    if isinstance(column, Ratio):
        return _ratio(report, contender, column)
    samples = _samples(report, contender, column.figure)
    if any(sample.get("ledger", "exact") != "exact" for sample in samples):
        return "ledger wrong"
    if any("error" in sample for sample in samples):
        return "failed"
    if isinstance(column, Text):
        return next((sample[column.key] for sample in samples if column.key in sample), NOTHING)
    value = value_of(report, contender, column)
    if value is None:
        return column.without if any("cannot" in sample for sample in samples) else NOTHING
    return column.form.format(value) if math.isfinite(value) else f"> {_limit(samples):,.0f}"


def _ratio(report: Report, contender: str, column: Ratio) -> str:
    over, under = value_of(report, contender, column.over), value_of(report, contender, column.under)
    if over is None or not under or math.isinf(over) or math.isinf(under):
        return NOTHING
    return column.form.format(over / under)


def _limit(samples: Sequence[Facts]) -> float:
    """How long the benchmark waited for jobs that never started, in milliseconds."""
    return min(float(sample["limit_seconds"]) for sample in samples if "limit_seconds" in sample) * 1000


def tables(report: Report) -> str:
    """All tables as Markdown, with the reasons for what is missing, the settings and the machine."""
    parts = [_table(report, table) for table in TABLES if _is_measured(report, table)]
    return "\n\n".join([*parts, _reasons(report), _settings(report), _machine(report)]) + "\n"


def text_of(report: Report) -> str:
    """The same tables with aligned columns, for a terminal."""
    return "\n\n".join(aligned(_table(report, table)) for table in TABLES if _is_measured(report, table))


def merged(reports: Sequence[Report], *, replace: bool = False) -> Report:
    """Merge runs that measured different figures. The newest run describes a contender.

    A merged report keeps its runs, and each sample has the number of its run. If several runs have the same figure of a
    contender, all their samples count, or with `replace` only those of the last run.
    """
    whole: Report = {**reports[-1], "contenders": {}, "servers": {}, "runs": [], "samples": []}
    for report in reports:
        first = len(whole["runs"])
        own = report.get("runs")
        whole["runs"] += own or [{key: report[key] for key in ("machine", "sizes", "rounds")}]
        for name, facts in report["contenders"].items():
            former = {key: value for key, value in whole["contenders"].get(name, {}).items() if key != "absent"}
            whole["contenders"][name] = {**former, **facts}
        whole["servers"] |= report["servers"]
        if replace:
            renewed = {(sample["contender"], sample["figure"]) for sample in report["samples"]}
            whole["samples"] = [
                sample for sample in whole["samples"] if (sample["contender"], sample["figure"]) not in renewed
            ]
        whole["samples"] += [{**sample, "run": first + (sample["run"] if own else 0)} for sample in report["samples"]]
    return whole


def as_json(report: Report) -> str:
    """Encode the report with one sample per line, so that two runs can be compared with diff."""
    rest = json.dumps({**report, "samples": []}, indent=1, ensure_ascii=False)
    samples = ",\n  ".join(json.dumps(sample, ensure_ascii=False) for sample in report["samples"])
    return rest.replace('"samples": []', f'"samples": [\n  {samples}\n ]') + "\n"


def write_docs(report: Report, page: Path, chart: str) -> None:
    """Write results and chart into the documentation, between its two marks."""
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
    own = [column for column in table.numbers if not column.is_context]
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


def aligned(markdown: str) -> str:
    """Align the columns of a Markdown table, for a terminal."""
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
    """List the reasons for missing numbers, once per contender and reason."""
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
    """Describe the machine and sizes, separately for each run if there are several."""
    runs = report.get("runs") or [{key: report[key] for key in ("machine", "sizes", "rounds")}]
    if len(runs) == 1:
        return f"### Machine and sizes\n\n{_run(runs[0])}"
    parts = ["### Machine and sizes"]
    for number, run in enumerate(runs):
        figures = dict.fromkeys(sample["figure"] for sample in report["samples"] if sample["run"] == number)
        if figures:
            parts.append(f"Run {number + 1}: {', '.join(figures)}.\n\n{_run(run)}")
    return "\n\n".join(parts)


def _run(run: Facts) -> str:
    facts = "\n".join(f"- {name}: {value}" for name, value in run["machine"].items())
    sizes = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in run["sizes"].items())
    return f"{facts}\n- sizes: {sizes}\n- rounds: {run['rounds']}"
