"""Settles attempts: writes their outcomes and lets parents wait for their children, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from stagepost.database.statement import SingleStatement, Statements, operation, single_statement
from stagepost.store.attempts import Written, end, ended_by, in_order, is_plain_end, log_failures, write_outcomes
from stagepost.store.children import wait_for_children
from stagepost.store.concluding import conclude
from stagepost.store.settlement import Fence, Settlement

__all__ = ["settle"]


@single_statement
def settle(changes: Sequence[Settlement], *, ended_counts: bool = True) -> SingleStatement[dict[Fence, bool]]:
    """Write the outcomes of attempts, and return for each attempt whether its fence held.

    An attempt that has already ended its job, in a handler's transaction or in a run of this operation whose reply was
    lost, counts as held. Pass `ended_counts=False` if the caller writes something else in the same transaction, which
    would otherwise be written twice. Of two changes for one attempt only the first is used. A job whose cancellation
    was requested ends as cancelled instead of being rescheduled. A job that has children waits for them to end.
    """
    ordered = in_order(changes)
    if not ordered or not all(map(is_plain_end, ordered)):
        return _settle_in_steps(ordered, ended_counts=ended_counts)
    ended = yield from end(ordered)
    if len(ended) == len(ordered):
        return dict.fromkeys((change.fence for change in ordered), True)
    unwritten = [change for change in ordered if change.fence not in ended]
    return _follow_up(ordered, Written(set(), ended, unwritten), ended_counts=ended_counts)


@operation
def _settle_in_steps(ordered: Sequence[Settlement], *, ended_counts: bool) -> Statements[dict[Fence, bool]]:
    written = yield from write_outcomes(ordered)
    return (yield from _follow_up(ordered, written, ended_counts=ended_counts))


@operation
def _follow_up(ordered: Sequence[Settlement], written: Written, *, ended_counts: bool) -> Statements[dict[Fence, bool]]:
    """Let jobs wait for their children, log failures, and find out why the other changes were not written."""
    accepted = written.rescheduled | written.ended
    for change in written.unwritten:
        if (yield from wait_for_children(change)):
            accepted.add(change.fence)
            # If its children have all ended before it, it ends now.
            yield from conclude(change.id)
    yield from log_failures(change for change in ordered if change.fence in accepted)
    if len(accepted) < len(ordered) and ended_counts:
        accepted |= yield from ended_by([change for change in ordered if change.fence not in accepted])
    return {change.fence: change.fence in accepted for change in ordered}
