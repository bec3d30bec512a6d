"""Settles attempts: writes what they gave, lets parents wait for their children, all in one transaction."""

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
    """Write what attempts gave, all in one transaction. Says for each attempt whether its fence still held.

    An attempt that already ended its job (in a transaction of the handler's, or in a run of this operation whose
    reply was lost) counts as held, unless `ended_counts` is False: then what is written beside it would be written
    twice. Of two changes for one attempt the first counts. A job that was asked to stop is not run again: it ends as
    cancelled instead of being rescheduled. A job that has children waits for them before it ends.
    """
    ordered = in_order(changes)
    rescheduled, ended, unwritten = yield from write_outcomes(ordered)
    accepted = rescheduled | ended
    for change in unwritten:
        if (yield from wait_for_children(change)):
            accepted.add(change.fence)
            # Its children may all have ended before it: then it ends at once.
            yield from conclude(change.id)
    yield from log_failures(change for change in ordered if change.kind is not None and change.fence in accepted)
    if len(accepted) == len(ordered):  # nearly always
        return dict.fromkeys(accepted, True)
    if ended_counts:
        accepted |= yield from ended_by([change for change in ordered if change.fence not in accepted])
    return {change.fence: change.fence in accepted for change in ordered}
