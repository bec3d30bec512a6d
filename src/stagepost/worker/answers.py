"""Settles remote jobs with the answers of external programs: the finisher of remote tasks."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from stagepost.clock import Clock
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.database.statement import Operation
from stagepost.errors import BadMessage, PayloadError, StoreUnavailable
from stagepost.loops.signals import Signals
from stagepost.model.envelope import Answer, decode_answer
from stagepost.model.groups import halves
from stagepost.model.job import LeasedJob
from stagepost.model.outcome import Completed, Failed, Outcome, Refused
from stagepost.model.reason import reason_of
from stagepost.model.results import check_progress, check_result
from stagepost.model.retry import shortened_error
from stagepost.store.answers import Accepted, accept_answers
from stagepost.store.settlement import Fence
from stagepost.task import Registry, Task
from stagepost.transport.rabbitmq.consumed_queue import Delivery
from stagepost.upkeep.message_ingester import MessageIngester
from stagepost.worker.activity import Activity
from stagepost.worker.attempt_counts import count_failure
from stagepost.worker.attempt_log import log_end, logs_all_ends
from stagepost.worker.finisher import is_conflict
from stagepost.worker.stalled_consumers import StalledConsumerCheck

__all__ = ["Answers", "Counted", "outcome_of_answer"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 500
PREFETCH = 500
MOST_REPORTS = 100
"""How many progress reports on locked jobs are kept for another try, so that answers do not wait behind them."""
HELD_SECONDS = 5.0
"""How long an answer for another app is kept before it is returned to the broker."""
LOOK_SECONDS = 1.0

Named = Mapping[Fence, list[tuple[Answer, Delivery]]]
AddUnreadable = Callable[[Delivery, str], Awaitable[None]]

_random = random.Random()  # noqa: S311 - spreads retries


class Counted(msgspec.Struct):
    """Numbers of answers, by what became of them."""

    settled: int = 0
    """Answers that ended or rescheduled their job."""
    repeated: int = 0
    """Further answers to a request that another answer in the same group settled."""
    ended: int = 0
    """Answers to jobs that have ended, were cancelled or do not exist."""
    stale: int = 0
    """Answers to an attempt other than the current one."""
    progress: int = 0
    strange: int = 0
    """Answers to jobs of tasks that this app does not know; they are returned to the broker."""
    bad: int = 0
    """Answers that cannot be read or stored."""


class Answers(MessageIngester):
    """Settles the jobs that answers name, in groups, and acknowledges an answer after the commit.

    A duplicate or late answer, or one for a job that has ended, is acknowledged and counted: the job's row decides.
    """

    def __init__(
        self,
        store: AsyncStore,
        registry: Registry,
        signals: Signals,
        *,
        url: str,
        settings: RabbitmqSettings,
        clock: Clock,
        add_unreadable: AddUnreadable,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """`add_unreadable` stores a message that is not an answer, with the reason, before it is acknowledged."""
        super().__init__(
            url,
            {settings.answers: PREFETCH},
            name="stagepost-answers",
            prepare=prepare,
            most_at_once=MOST_AT_ONCE,
            interval=LOOK_SECONDS,
        )
        self.counted = Counted()
        self._ignored: dict[str, str] = {}
        """Why the last progress report that did not fit its task was ignored."""
        self._store = store
        self._signals = signals
        self._tasks = {task.name: task for task in registry if task.options.remote}
        self._patience = registry.remote_queues
        self._clock = clock
        self._add_unreadable = add_unreadable
        self._held: list[tuple[float, Delivery]] = []
        self._activity = Activity(store, clock)
        self._consumer_check = StalledConsumerCheck(
            store, clock, dict.fromkeys(self._patience, settings.answers), lambda: self.consumer
        )

    def has_some(self, queue: str) -> bool:
        """Whether this process holds answers that may belong to requests of a queue."""
        is_anothers = queue not in self._patience
        return self.consumer.has_more or bool(self._undone) or (is_anothers and bool(self._held))

    async def _take_in(self, deliveries: list[Delivery]) -> int:
        """Settle the jobs that were answered; returns how many."""
        settled = self.counted.settled
        final, progress = await self._read(deliveries)
        await self._accept(final, progress)
        return self.counted.settled - settled

    async def _read(self, deliveries: list[Delivery]) -> tuple[Named, list[tuple[Answer, Delivery]]]:
        """Separate answers, by the attempt they answer, from progress reports; refuse everything else."""
        final: dict[Fence, list[tuple[Answer, Delivery]]] = {}
        progress = []
        for delivery in deliveries:
            try:
                answer = decode_answer(delivery.body)
            except BadMessage as error:
                await self._refuse([delivery], str(error))
                continue
            if answer.status == "progress":
                progress.append((answer, delivery))
            else:
                final.setdefault((str(answer.task_id), answer.attempt), []).append((answer, delivery))
        return final, progress

    async def _accept(self, final: Named, progress: list[tuple[Answer, Delivery]]) -> None:
        newest = {(str(answer.task_id), answer.attempt): (answer, delivery) for answer, delivery in progress}
        in_progress = {fence: bytes(answer.progress) for fence, (answer, _) in newest.items()}
        try:
            accepted = await self._store.run(self._accepting(final, in_progress))
        except StoreUnavailable as error:
            if not is_conflict(error, self._store) or len(final) <= 1:
                raise
            accepted = None
            await self._accept_singly(final)
        except Exception as error:  # noqa: BLE001 - logged again with the answer that caused it
            log.warning("%d answers could not be stored together; storing them in halves: %s", len(final), error)
            accepted = None
            await self._accept_in_halves(final)
        if accepted is None:
            accepted, final = await self._store.run(self._accepting({}, in_progress)), {}
        undone = [newest[fence][1] for fence in sorted(accepted.passed_over)[:MOST_REPORTS]]
        taken = [delivery for _, delivery in progress if not any(delivery is kept for kept in undone)]
        self.counted.progress += len(taken)
        self._done(taken)
        await self._note(accepted, final)

    async def _accept_in_halves(self, final: Named) -> None:
        """Store smaller and smaller groups to find the answer that the store refuses."""
        if len(final) <= 1:
            await self._accept_singly(final)
            return
        for half in map(dict, halves(list(final.items()))):
            try:
                accepted = await self._store.run(self._accepting(half, {}), patience_seconds=0)
            except StoreUnavailable as error:
                if not is_conflict(error, self._store):
                    raise
                await self._accept_singly(half)
            except Exception:  # noqa: BLE001 - as above
                await self._accept_in_halves(half)
            else:
                await self._note(accepted, half)

    async def _accept_singly(self, final: Named) -> None:
        """Fail only the job whose answer the store refuses, and skip jobs that are locked."""
        for fence, answers in final.items():
            one = {fence: answers}
            accepted: Accepted | None
            try:
                accepted = await self._store.run(self._accepting(one, {}), patience_seconds=0)
            except StoreUnavailable as error:
                if not is_conflict(error, self._store):
                    raise
                continue  # stays in `_undone` for the next pass
            except Exception as error:
                reason = f"its answer could not be stored: {type(error).__name__}: {error}"
                log.exception("job %s: %s", fence[0], reason, extra={"job_id": fence[0], "attempt": fence[1]})
                accepted = await self._fail(one, Refused(shortened_error(reason)))
            if accepted is not None:
                await self._note(accepted, one)

    async def _fail(self, one: Named, outcome: Refused) -> Accepted | None:
        try:
            return await self._store.run(
                accept_answers(list(one), task_names=list(self._tasks), decide=lambda _job: outcome)
            )
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - stored with the dead letters
            await self._refuse([delivery for answers in one.values() for _, delivery in answers], repr(error))
            return None

    def _accepting(self, final: Named, in_progress: Mapping[Fence, bytes]) -> Operation[Accepted]:
        def decide(job: LeasedJob) -> Outcome:
            answer, _ = final[job.id, job.attempt][0]
            return outcome_of_answer(answer, job, self._tasks[job.task_name])

        return accept_answers(
            list(final), task_names=list(self._tasks), decide=decide, in_progress=in_progress, read=self._progress_in
        )

    def _progress_in(self, task_name: str, report: bytes) -> str | None:
        """Return the progress to store; a report that does not fit still shows that its program is alive."""
        task = self._tasks.get(task_name)
        if task is None:
            return None
        try:
            return check_progress(report, annotation=task.options.progress)
        except PayloadError as error:
            if self._ignored.get(task_name) != (why := reason_of(str(error))):  # a program repeats its mistake
                self._ignored[task_name] = why
                log.warning("task %s: a progress report of its program is ignored: %s", task_name, error)
            return None

    async def _note(self, accepted: Accepted, final: Named) -> None:
        """Count and acknowledge the answers, and notify the loops that continue from here."""
        self.counted.settled += len(accepted.settled)
        self.counted.ended += len(accepted.ended)
        self.counted.stale += len(accepted.stale)
        self.counted.repeated += sum(len(answers) - 1 for answers in final.values())
        strange = set(accepted.strange)
        for fence, answers in final.items():
            deliveries = [delivery for _, delivery in answers]
            if fence in strange:
                self._hold(deliveries)
            else:
                self._done(deliveries)
        logs_all = logs_all_ends()
        for settled in accepted.settled:
            count_failure(self._store.store.counts, settled.job.task_name, settled.change)
            if settled.change.kind is not None or logs_all:
                log_end(settled.job, settled.change)
        if accepted.settled:
            self._signals.batches_touched.send({settled.job.batch_id for settled in accepted.settled})
            self._signals.messages_ready.send()
        changes = [settled.change for settled in accepted.settled]
        if limit_keys := {change.limit_key for change in changes if change.limit_key}:
            self._signals.limits_freed.send(limit_keys)
        for queue in {self._tasks[name].options.queue for name in accepted.seen & self._tasks.keys()}:
            await self._activity.note(queue, often=self._patience[queue].total_seconds() / 10)

    async def _refuse(self, deliveries: list[Delivery], reason: str) -> None:
        for delivery in deliveries:
            await self._add_unreadable(delivery, reason)
        self.counted.bad += len(deliveries)
        self._done(deliveries)

    def _hold(self, deliveries: list[Delivery]) -> None:
        """Keep answers for another app for a while; returned at once, the broker would deliver them here again."""
        now = self._clock.monotonic()
        self._forget(deliveries)
        self._held += [(now, delivery) for delivery in deliveries]
        self.counted.strange += len(deliveries)

    async def _prepare_pass(self) -> None:
        await self._consumer_check.look()
        now = self._clock.monotonic()
        due = [delivery for since, delivery in self._held if now - since >= HELD_SECONDS]
        if due:
            self._held = [(since, delivery) for since, delivery in self._held if now - since < HELD_SECONDS]
            self.consumer.give_back(due)


def outcome_of_answer(answer: Answer, job: LeasedJob, task: Task[..., Any]) -> Outcome:
    """Convert an answer to an outcome. A result must fit the task's return type; a failure follows its retry policy."""
    options = task.options
    if answer.status == "completed":
        try:
            return Completed(
                check_result(bytes(answer.result), annotation=task.signature.result_annotation, limits=options.limits)
            )
        except PayloadError as error:
            return Refused(shortened_error(f"the program's answer cannot be used: {error}"))
    error_text = shortened_error(answer.error or "the program gave no reason")
    if not answer.retryable:
        return Refused(error_text)
    return Failed(error_text, options.retry.delay(job.failures + 1, random=_random))
