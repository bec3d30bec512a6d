"""`stagepost events`: lists events, and prints new ones as they happen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from itertools import islice
from typing import Any

import click

from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, cell_text, time_text
from stagepost.cli.options import Group
from stagepost.client.events import PAGE, Events
from stagepost.events import EVENT_TYPES, Event

__all__ = ["events"]

TYPES = sorted(kind.type for kind in EVENT_TYPES.values())


@click.group(cls=Group)
def events() -> None:
    """List events, or follow them as they happen.

    An event says how a job ended. Events are numbered in order.
    """


def filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose events, and pass the choice on as one function, `is_chosen`."""

    @wraps(command)
    def chosen(*arguments: Any, types: tuple[str, ...], task: str | None, **options: Any) -> Any:
        def is_chosen(event: Event) -> bool:
            return (not types or event.type in types) and (task is None or event.task == task)

        return command(*arguments, is_chosen=is_chosen, **options)

    by_type = click.option(
        "--type", "types", multiple=True, type=click.Choice(TYPES), help="Show only this type; repeat for more."
    )
    return by_type(click.option("--task", help="Show only events of this task's jobs.")(chosen))


@events.command("list")
@click.option(
    "--after", type=click.IntRange(min=0), metavar="NUMBER", help="Start after this event. [default: the oldest stored]"
)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show.")
@filters
@click.pass_obj
def list_events(invocation: Invocation, *, after: int | None, limit: int, is_chosen: Callable[[Event], bool]) -> None:
    """List stored events, oldest first."""
    output = invocation.output
    found = list(islice(filter(is_chosen, _stored(invocation.operator.events, after)), limit))
    next_after = found[-1].number if len(found) == limit else None

    def show() -> None:
        output.table(_rows(found))
        if next_after is not None:
            output.remark(f"There may be more. Continue with --after {next_after}")

    output.result({"events": [event.cloud_event() for event in found], "next_after": next_after}, show)


@events.command("tail")
@click.option(
    "--after", type=click.IntRange(min=0), metavar="NUMBER", help="Start after this event. [default: the newest]"
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Exit after so many events.")
@filters
@click.pass_obj
def tail(invocation: Invocation, *, after: int | None, limit: int | None, is_chosen: Callable[[Event], bool]) -> None:
    """Print events as they happen, until you press Ctrl-C.

    With --json, each line is a CloudEvents 1.0 document. Its `sequence` is the number for --after.
    """
    stream, output = invocation.operator.events, invocation.output
    start = stream.last_number() if after is None else after
    with contextlib.suppress(KeyboardInterrupt):
        for event in islice(filter(is_chosen, stream.follow(after=start)), limit):
            if output.as_json:
                output.document_line(event.cloud_event())
            else:
                output.say(_line(event))


def _stored(stream: Events, after: int | None) -> Iterator[Event]:
    while True:
        page = stream.page(after=after)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].number


def _rows(found: Iterable[Event]) -> Section:
    return Section(
        columns=("number", "time", "type", "job", "task", "queue", "attempt", "reason"),
        rows=[
            (
                event.number,
                time_text(event.time),
                event.type,
                event.job_id,
                event.task,
                event.queue,
                event.attempt,
                event.reason,
            )
            for event in found
        ],
        numbers=frozenset({"number", "attempt"}),
        empty="No events.",
    )


def _line(event: Event) -> str:
    reason = f": {cell_text(event.reason)}" if event.reason else ""
    return f"{event.number} {time_text(event.time)} {event.type} {event.task} {event.job_id}{reason}"
