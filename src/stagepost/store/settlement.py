"""The change that settling writes for one attempt: its fence and its job's next state."""

from __future__ import annotations

from typing import Any

import msgspec

from stagepost.model.children import DeferredOutcome
from stagepost.model.job import LeasedJob, microseconds
from stagepost.model.lifecycle import FINAL, Cause, JobState, next_state
from stagepost.model.outcome import (
    Abandoned,
    Completed,
    Crashed,
    Failed,
    Outcome,
    Refused,
    Snoozed,
    cause_of,
)
from stagepost.model.reason import reason_of

__all__ = ["Fence", "Settlement"]

Fence = tuple[str, int]
"""A job's id and an attempt's number."""

ERROR_CHARACTERS = 8_000
FENCE_BYTES = 200
"""About the size of a settlement without result and error."""
WITH_REASON = (JobState.FAILED, JobState.DEAD_LETTER)
COMPLETED = next_state(JobState.RUNNING, Cause.COMPLETE)


class Settlement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job's change after an attempt, guarded by `id`, `attempt` and `owner`.

    Defaults are omitted from the JSON parameter of a statement, which may hold hundreds of settlements.
    """

    id: str
    attempt: int
    owner: str
    """Empty if the job has no owner."""
    state: JobState
    failures: int = 0
    """The number to add to the job's failures."""
    crashes: int = 0
    """The number to add to the job's crashes."""
    delay_us: int = 0
    result: str | None = None
    error: str | None = None
    traceback: str | None = None
    kind: str | None = None
    """The kind of entry in the failure log; None writes no entry."""
    limit_key: str | None = None
    reason: str | None = None
    """The error without ids and numbers, set for failed jobs and dead letters so that similar ones can be grouped."""
    ending: DeferredOutcome | None = None
    """How a completed job ends, or continues, after its children, if that differs from the default."""

    def __post_init__(self) -> None:
        if self.state in WITH_REASON:
            msgspec.structs.force_setattr(self, "reason", reason_of(self.error))

    @property
    def fence(self) -> Fence:
        """The attempt that this change belongs to."""
        return self.id, self.attempt

    @property
    def size(self) -> int:
        """About how many bytes it takes in a statement's parameters."""
        size = FENCE_BYTES if self.result is None else FENCE_BYTES + len(self.result)
        if self.error is not None:
            size += len(self.error) + len(self.traceback or "")
        if self.ending is not None and self.ending.then is not None:
            size += len(self.ending.then.payload)
        return size

    @property
    def is_final(self) -> bool:
        """Whether the job moves to history."""
        return self.state in FINAL

    @property
    def goes_on(self) -> bool:
        """Whether the job has a continuation that runs after its children."""
        return self.ending is not None and self.ending.then is not None

    def cancelled(self) -> Settlement:
        """The change to write instead for a job whose cancellation was requested meanwhile."""
        state = next_state(JobState.RUNNING, Cause.CANCEL)
        return msgspec.structs.replace(self, state=state, error=self.error or "cancelled while it ran")

    @classmethod
    def of(cls, job: LeasedJob, outcome: Outcome) -> Settlement:
        """Decide what an attempt's outcome does to its job."""
        if type(outcome) is Completed:  # a shortcut for the most frequent outcome
            return cls(
                id=job.id,
                attempt=job.attempt,
                owner=job.owner,
                limit_key=job.limit_key,
                state=COMPLETED,
                result=outcome.result,
                ending=outcome.ending,
            )
        failures, crashes = int(isinstance(outcome, (Failed, Refused))), int(isinstance(outcome, Crashed))
        cause = cause_of(
            outcome,
            failures=job.failures + failures,
            crashes=job.crashes + crashes,
            max_attempts=job.max_attempts,
        )
        return cls(
            id=job.id,
            attempt=job.attempt,
            owner=job.owner,
            limit_key=job.limit_key,
            state=next_state(JobState.RUNNING, cause),
            failures=failures,
            crashes=crashes,
            **_facts(outcome),
        )

    @classmethod
    def of_state(
        cls, job_id: str, attempt: int, owner: str | None, state: JobState, *, error: str | None = None
    ) -> Settlement:
        """The change that ends a job without an attempt's outcome, such as a cancellation."""
        return cls(id=job_id, attempt=attempt, owner=owner or "", state=state, error=error)


def _facts(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Failed(error, delay, traceback):
            return {
                "error": error[:ERROR_CHARACTERS],
                "traceback": traceback,
                "delay_us": microseconds(delay),
                "kind": "failed",
            }
        case Refused(error, traceback):
            return {"error": error[:ERROR_CHARACTERS], "traceback": traceback, "kind": "refused"}
        case Snoozed(delay):
            return {"delay_us": microseconds(delay)}
        case Abandoned(reason):
            return {"error": reason[:ERROR_CHARACTERS]}
        case Crashed(error):
            return {"error": error[:ERROR_CHARACTERS], "kind": "crashed"}
        case _:
            return {}
