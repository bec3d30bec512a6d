"""What became of attempts, as the only writer of their outcomes tells it; what follows is for others to do."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from stagepost.database.statement import operation
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Failed, Outcome, Snoozed
from stagepost.store import attempts, cancelling, jobs
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.families import submit
from tests.conformance.samples import fence, running

AGAIN = Failed("no ink", timedelta(hours=1))

write_outcomes = operation(attempts.write_outcomes)


def test_every_attempt_is_reported_as_rescheduled_ended_or_unwritten(store: Bench) -> None:
    whole, failing, snoozing, stopped, parent, lost = [running(store) for _ in range(6)]
    store.run(cancelling.cancel_job(stopped.id, actor="ada"))
    submit(store, parent, 2)
    outcomes: list[Outcome] = [Completed(), AGAIN, Snoozed(timedelta(hours=1)), AGAIN, Completed(), Completed()]
    given = [
        whole, failing, snoozing, stopped, parent,
        msgspec.structs.replace(lost, owner="somebody else"),
    ]  # fmt: skip
    changes = attempts.in_order(map(Settlement.of, given, outcomes))

    written = store.run(write_outcomes(changes))

    assert written.rescheduled == {fence(failing), fence(snoozing)}
    assert written.ended == {fence(whole), fence(stopped)}
    assert {change.fence for change in written.unwritten} == {fence(parent), fence(lost)}
    states = {job.id: store.run(jobs.get(job.id)).state for job in (stopped, parent, lost)}
    assert states == {stopped.id: JobState.CANCELLED, parent.id: JobState.RUNNING, lost.id: JobState.RUNNING}
