"""Settles attempts: writes their outcomes and lets parents wait for their children, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from stagepost.database.statement import Statements, operation
from stagepost.store.attempts import ended_by, in_order, log_failures, write_outcomes
from stagepost.store.children import wait_for_children
from stagepost.store.concluding import conclude
from stagepost.store.settlement import Fence, Settlement

__all__ = ["settle"]


@operation
def settle(changes: Sequence[Settlement], *, ended_counts: bool = True) -> Statements[dict[Fence, bool]]:
    """Write the outcomes of attempts, all in one transaction, and return for each attempt whether its fence held.

    An attempt that has already ended its job, in a handler's transaction or in a run of this operation whose reply was
    lost, counts as held. Pass `ended_counts=False` if the caller writes something else in the same transaction, which
    would otherwise be written twice. Of two changes for one attempt only the first is used. A job whose cancellation
    was requested ends as cancelled instead of being rescheduled. A job that has children waits for them to end.
    """
    ordered = in_order(changes)
    rescheduled, ended, unwritten = yield from write_outcomes(ordered)
    accepted = rescheduled | ended
    for change in unwritten:
        if (yield from wait_for_children(change)):
            accepted.add(change.fence)
            # If its children have all ended before it, it ends now.
            yield from conclude(change.id)
    yield from log_failures(change for change in ordered if change.fence in accepted)
    if len(accepted) < len(ordered) and ended_counts:
        accepted |= yield from ended_by([change for change in ordered if change.fence not in accepted])
    return {change.fence: change.fence in accepted for change in ordered}
