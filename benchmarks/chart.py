"""Draws bar charts as SVG without a plotting library, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from benchmarks.report import TABLES, Column, Report, value_of

__all__ = ["Bar", "Panel", "chart", "drawn", "panels"]

WIDTH = 760
LABEL_WIDTH = 190
VALUE_WIDTH = 90
BAR_HEIGHT = 14
ROW_GAP = 8
PANEL_GAP = 34
STYLE = """
text { font-family: system-ui, "DejaVu Sans", sans-serif; font-size: 12px; fill: #24292f }
.title { font-weight: 600; font-size: 14px }
.value { font-variant-numeric: tabular-nums }
.first { fill: #0a6c74 } .second { fill: #6cc3c9 }
.ours .first { fill: #b4450b } .ours .second { fill: #eda26f }
.limit .first, .limit .second { fill: #8c959f }
@media (prefers-color-scheme: dark) { text { fill: #d0d7de } }
"""


@dataclass(frozen=True)
class Bar:
    """One contender's row of one or two values, drawn side by side or stacked."""

    label: str
    values: tuple[float, ...]
    kind: str = ""
    """`ours` or `limit` for a special colour."""


@dataclass(frozen=True)
class Panel:
    """A titled group of bars on one scale."""

    title: str
    bars: tuple[Bar, ...]
    is_stacked: bool = False


def chart(report: Report) -> str:
    """Draw the figures of a report."""
    return drawn(panels(report))


def panels(report: Report) -> list[Panel]:
    """Choose the panels: speed with the largest first, CPU time with the smallest first."""
    drain, enqueue = TABLES[1].numbers, TABLES[0].numbers
    chosen = [
        _panel(report, "Drain, jobs/s: one process, two processes", [drain[0], drain[3]]),
        _panel(report, "CPU time per job, µs: worker, server (one process)", drain[1:3], stacked=True),
        _panel(report, "Enqueue one by one, jobs/s", [enqueue[0]]),
        _panel(report, "Enqueue in bulk, jobs/s", [enqueue[3]]),
    ]
    return [panel for panel in chosen if panel.bars]


def drawn(chosen: Sequence[Panel]) -> str:
    """Draw panels one below the other."""
    parts, top = [], PANEL_GAP
    for panel in chosen:
        parts.append(f'<text class="title" x="0" y="{top - 12}">{escape(panel.title)}</text>')
        largest = max((_extent(bar, panel) for bar in panel.bars), default=0) or 1
        for bar in panel.bars:
            parts.append(_row(bar, panel, top, (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / largest))
            top += _height(bar, panel) + ROW_GAP
        top += PANEL_GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
        f'role="img"><style>{STYLE}</style>{"".join(parts)}</svg>\n'
    )


def _panel(report: Report, title: str, columns: Sequence[Column], *, stacked: bool = False) -> Panel:
    bars = []
    for name, facts in report["contenders"].items():
        values = [value_of(report, name, column) for column in columns]
        if values[0] is not None:
            known = tuple(value for value in values if value is not None)
            bars.append(Bar(facts["title"], known, _kind(name)))
    bars.sort(key=lambda bar: sum(bar.values) if stacked else -max(bar.values))
    return Panel(title, tuple(bars), stacked)


def _kind(name: str) -> str:
    kinds: Mapping[str, str] = {"stagepost": "ours", "limit": "limit"}
    return kinds.get(name.partition("-")[0], "")


def _row(bar: Bar, panel: Panel, top: int, scale: float) -> str:
    shown = " · ".join(f"{value:,.0f}" for value in bar.values)
    middle = top + _height(bar, panel) / 2 + 4
    boxes, left, y = [], float(LABEL_WIDTH), top
    for value, colour in zip(bar.values, ("first", "second"), strict=False):
        width = max(value * scale, 1)
        boxes.append(
            f'<rect class="{colour}" x="{left:.1f}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>'
        )
        left, y = (left + width, y) if panel.is_stacked else (left, y + BAR_HEIGHT)
    end = LABEL_WIDTH + _extent(bar, panel) * scale + 6
    return (
        f'<g class="{bar.kind}"><text x="{LABEL_WIDTH - 8}" y="{middle:.1f}" text-anchor="end">'
        f"{escape(bar.label)}</text>{''.join(boxes)}"
        f'<text class="value" x="{end:.1f}" y="{middle:.1f}">{shown}</text></g>'
    )


def _extent(bar: Bar, panel: Panel) -> float:
    return sum(bar.values) if panel.is_stacked else max(bar.values)


def _height(bar: Bar, panel: Panel) -> int:
    return BAR_HEIGHT if panel.is_stacked else BAR_HEIGHT * len(bar.values)
