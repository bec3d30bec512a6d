"""`stagepost gates`: shows gates and the batches that keep them closed."""

from __future__ import annotations

from typing import Any

import click

from stagepost.cli.documents import instant
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, time_text
from stagepost.cli.options import Group
from stagepost.operations import GateStatus

__all__ = ["gates"]


@click.group(cls=Group)
def gates() -> None:
    """Inspect gates and the batches that keep them closed."""


@gates.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show.")
@click.option("--after", default="", metavar="GATE", help="Continue after the last gate of the previous page.")
@click.pass_obj
def list_all(invocation: Invocation, *, limit: int, after: str) -> None:
    """List gates by name."""
    found = invocation.operator.gates.page(after=after, limit=limit)
    following = found[-1].name if len(found) == limit else None
    output = invocation.output
    section = Section(
        columns=("gate", "state", "unfinished batches", "opened", "last"),
        rows=[(gate.name, _state(gate), gate.unfinished, gate.openings, time_text(gate.opened_at)) for gate in found],
        numbers=frozenset({"unfinished batches", "opened"}),
        empty="There are no gates.",
    )

    def show() -> None:
        output.table(section)
        if following is not None:
            output.remark(f"There may be more. Continue with --after {following}")

    output.result({"gates": [_document(gate) for gate in found], "next_after": following}, show)


@gates.command("show")
@click.argument("name", metavar="GATE")
@click.pass_obj
def show_one(invocation: Invocation, *, name: str) -> None:
    """Show whether a gate is open, and which batches keep it closed."""
    gate = invocation.operator.gates.get(name)
    batches = dict(gate.batches)
    output = invocation.output

    def show() -> None:
        output.say(f"Gate {name} is {_state(gate)}; it has {_times(gate.openings)}.")
        if batches:
            output.table(Section(columns=("unfinished batch", "items"), rows=list(batches.items())))
        if gate.unfinished > len(batches) > 0:
            output.say(f"… and {gate.unfinished - len(batches):,} more.")

    output.result({**_document(gate), "batches": batches}, show)


def _state(gate: GateStatus) -> str:
    return "open" if gate.is_open else "closed"


def _times(number: int) -> str:
    return "never opened" if number == 0 else "opened once" if number == 1 else f"opened {number:,} times"


def _document(gate: GateStatus) -> dict[str, Any]:
    return {
        "name": gate.name,
        "is_open": gate.is_open,
        "unfinished": gate.unfinished,
        "openings": gate.openings,
        "opened_at": instant(gate.opened_at),
    }
