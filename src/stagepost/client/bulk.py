"""Actions on many jobs or dead messages: page by page, each page in a transaction of its own.

An action that is interrupted has handled whole pages, and can be repeated: it then finds the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from stagepost.client.arguments import check_progress
from stagepost.client.operator_records import BulkResult
from stagepost.client.procedures import Procedure
from stagepost.errors import UniqueKeyTaken
from stagepost.model.dead_letter import DeadMessage
from stagepost.model.lifecycle import JobState
from stagepost.store.cancelling import cancel_jobs
from stagepost.store.dead_messages import discard_dead_messages, find_dead_message, retry_dead_messages
from stagepost.store.history import Discarded, discard
from stagepost.store.jobs import restart

__all__ = [
    "GONE",
    "PAGE",
    "Act",
    "Handled",
    "NextPage",
    "Report",
    "cancel_page",
    "discard_message_page",
    "discard_page",
    "handle_all",
    "pages_of",
    "retry_message_page",
    "retry_page",
]

T = TypeVar("T")

PAGE = 500
"""Most jobs or messages in one transaction."""
CANCELLED_AT_ONCE = 50
"""Fewer, because the children and the batch of each job are locked with it."""
MOST_REASONS = 10_000
GONE = "{} no longer exists, or is not in a state that allows it."
NOWHERE = (
    "Message {} cannot be sent again: it was published directly to the dead-letter queue, so its original queue is "
    "unknown. Use `stagepost dead show` to see it."
)


class Handled(msgspec.Struct, frozen=True):
    """What was done with one page."""

    done: Sequence[str]
    refused: Mapping[str, str] = {}
    """Reasons for refusal, by id. What is in neither does not exist, or was not in a state that allows the action."""


Act = Callable[[Sequence[str]], Procedure[Handled]]
"""Handles one page of ids."""
NextPage = Callable[[Any], Procedure[tuple[Sequence[str], Any]]]
"""Finds the page at a position, None for the first; returns its ids and the next position, None at the end."""
Report = Callable[[BulkResult], None]
"""Is called after each page with what has been done so far."""


def handle_all(
    next_page: NextPage, act: Act, *, report: Report | None = None, before: BulkResult | None = None
) -> Procedure[BulkResult]:
    """Act on page after page, and add up what was done; `before` is what was done earlier."""
    check_progress(report)
    result, position = before or BulkResult(), None
    while True:
        page, position = yield from next_page(position)
        if page:
            result = _added(result, page, (yield from act(page)))
            if report is not None:
                report(result)
        if position is None:
            return result


def pages_of(ids: Sequence[str]) -> NextPage:
    """Split a list of ids into pages."""
    chosen = list(dict.fromkeys(ids))

    def next_page(position: Any) -> Procedure[tuple[Sequence[str], Any]]:
        yield from ()  # needs nothing from the database
        start = position or 0
        end = start + PAGE
        return chosen[start:end], end if end < len(chosen) else None

    return next_page


def retry_page(actor: str) -> Act:
    """Queue ended jobs again; refuse those whose unique key is taken."""

    def act(page: Sequence[str]) -> Procedure[Handled]:
        try:
            return Handled((yield restart(page, actor=actor)))
        except UniqueKeyTaken:
            pass  # one by one, so that a refused job does not affect the others
        done: list[str] = []
        refused: dict[str, str] = {}
        for job_id in page:
            try:
                done += yield restart([job_id], actor=actor)
            except UniqueKeyTaken as error:
                refused[job_id] = str(error)
        return Handled(done, refused)

    return act


def discard_page(actor: str) -> Act:
    """Delete ended jobs permanently; refuse those that an unfinished batch, parent or run needs."""

    def act(page: Sequence[str]) -> Procedure[Handled]:
        discarded: Discarded = yield discard(page, actor=actor)
        return Handled(discarded.ids, discarded.kept)

    return act


def cancel_page(actor: str, on_cancelled: Callable[[JobState], None]) -> Act:
    """Cancel jobs, and ask running ones to stop; `on_cancelled` gets the new state of each."""

    def act(page: Sequence[str]) -> Procedure[Handled]:
        done: list[str] = []
        for start in range(0, len(page), CANCELLED_AT_ONCE):
            states: dict[str, JobState] = yield cancel_jobs(page[start : start + CANCELLED_AT_ONCE], actor=actor)
            done += states
            for state in set(states.values()):
                on_cancelled(state)
        return Handled(done)

    return act


def retry_message_page(actor: str) -> Act:
    """Send dead messages again; refuse those whose original queue is unknown."""

    def act(page: Sequence[str]) -> Procedure[Handled]:
        done: list[str] = yield retry_dead_messages(page, actor=actor)
        refused: dict[str, str] = {}
        for message_id in sorted(set(page) - set(done)):
            found: DeadMessage | None = yield find_dead_message(message_id)
            if found is not None:
                refused[message_id] = NOWHERE.format(message_id)
        return Handled(done, refused)

    return act


def discard_message_page(actor: str) -> Act:
    """Delete dead messages permanently."""

    def act(page: Sequence[str]) -> Procedure[Handled]:
        return Handled((yield discard_dead_messages(page, actor=actor)))

    return act


def _added(result: BulkResult, page: Sequence[str], handled: Handled) -> BulkResult:
    gone = set(page) - set(handled.done) - handled.refused.keys()
    reasons = {**handled.refused, **{one: GONE.format(one) for one in sorted(gone)}}
    kept = {**result.reasons, **reasons}
    return BulkResult(
        done=result.done + len(handled.done),
        skipped=result.skipped + len(reasons),
        reasons=kept if len(kept) <= MOST_REASONS else result.reasons,
    )
