"""Handles to runs of pipelines: inspect them, wait for them, retry and cancel them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from stagepost.client.arguments import actor_of
from stagepost.client.client import typed_result
from stagepost.client.procedures import Procedure, run_procedure, run_procedure_async
from stagepost.client.waiting import late, pauses
from stagepost.errors import RunError
from stagepost.model.lifecycle import JobState
from stagepost.model.option_types import check_type
from stagepost.model.pipeline import Run, RunState, StepState
from stagepost.store import runs
from stagepost.store.cancelling import cancel_items
from stagepost.store.run_views import RunView, StepResults, results_of, run_view
from stagepost.store.wait_reasons import why_run_waits

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["RunHandle"]


class RunHandle:
    """A run of a pipeline: its id and key, and whether this request created it."""

    def __init__(self, app: App, run: Run, *, is_new: bool) -> None:
        self.id = run.id
        self.key = run.key
        self.is_new = is_new
        self._app = app

    def __repr__(self) -> str:
        return f"RunHandle({self.id!r}, key={self.key!r})"

    def state(self, *, tx: Any = None) -> RunState:
        """Read the run's current state from the database."""
        return run_procedure(self._found(), self._app, tx).state

    async def state_async(self, *, tx: Any = None) -> RunState:
        """Read the run's current state without blocking the event loop."""
        return (await run_procedure_async(self._found(), self._app, tx)).state

    def graph(self, *, tx: Any = None) -> RunView:
        """Read the run's steps, their order and their progress; with `tx`, as your transaction sees them."""
        return run_procedure(self._looked_at(), self._app, tx)

    async def graph_async(self, *, tx: Any = None) -> RunView:
        """Read the run like `graph`, without blocking the event loop; `tx` is an async connection or session."""
        return await run_procedure_async(self._looked_at(), self._app, tx)

    def wait(self, *, timeout: timedelta | float | None = None) -> RunState:
        """Wait until the run ends and return its state; raises WaitTimeout after `timeout`."""
        return run_procedure(self._waited(timeout), self._app)

    async def wait_async(self, *, timeout: timedelta | float | None = None) -> RunState:
        """Wait like `wait`, without blocking the event loop."""
        return await run_procedure_async(self._waited(timeout), self._app)

    def result(self, step: str) -> Any:
        """Return a step's result as its task's return type; a step with many jobs gives a list, in element order."""
        return self._decoded(step, self._app.store.run(results_of(self.id, _checked(step))))

    async def result_async(self, step: str) -> Any:
        """Return a step's result without blocking the event loop."""
        return self._decoded(step, await self._app.async_store.run(results_of(self.id, _checked(step))))

    def retry(self, *, actor: str | None = None, tx: Any = None) -> RunState:
        """Continue a run that failed or was cancelled; completed jobs are not run again.

        With `tx` the retry is part of your transaction and takes effect when you commit.
        """
        return run_procedure(self._retried(actor, tx), self._app, tx)

    async def retry_async(self, *, actor: str | None = None, tx: Any = None) -> RunState:
        """Continue a run like `retry`, without blocking the event loop; `tx` is an async connection or session."""
        return await run_procedure_async(self._retried(actor, tx), self._app, tx)

    def cancel(self, *, actor: str | None = None) -> RunState:
        """Start no more steps, cancel waiting jobs and ask running ones to stop; returns the state after the call."""
        return run_procedure(self._cancelled(actor), self._app)

    async def cancel_async(self, *, actor: str | None = None) -> RunState:
        """Cancel the run without blocking the event loop."""
        return await run_procedure_async(self._cancelled(actor), self._app)

    def _found(self) -> Procedure[Run]:
        run: Run = yield runs.get(self.id)
        return run

    def _looked_at(self) -> Procedure[RunView]:
        view: RunView = yield run_view(self.id)
        return view

    def _waited(self, timeout: timedelta | float | None) -> Procedure[RunState]:
        subject = f"run {self.id}"
        for pause in pauses(timeout, subject):
            run = yield from self._found()
            if run.state is not RunState.RUNNING:
                return run.state
            yield pause
        raise late(timeout, subject, missing="did not end", why=(yield why_run_waits(self.id)))

    def _retried(self, actor: str | None, tx: Any) -> Procedure[RunState]:
        run: Run = yield runs.retry(self.id, actor=actor_of(actor))
        self._app.store.notifier.notify({step.queue_name for step in run.plan.steps}, tx=tx)
        return run.state

    def _decoded(self, step: str, found: StepResults) -> Any:
        if found.state is not StepState.COMPLETED:
            raise RunError(self.id, f"step {step!r} is {found.state}{f': {found.error}' if found.error else ''}.")
        registry = self._app.registry
        results = [None if job.state is JobState.WAIVED else typed_result(job, registry) for job in found.jobs]
        return results if found.is_list else results[0]

    def _cancelled(self, actor: str | None) -> Procedure[RunState]:
        batches: list[str] = yield runs.cancel(self.id, actor=actor_of(actor))
        for batch_id in batches:  # upkeep does the rest if this is interrupted
            after: str | None = ""
            while after is not None:
                after = yield cancel_items(batch_id, after=after)
        return (yield from self._found()).state


def _checked(step: str) -> str:
    check_type("step", step, str)
    return step
