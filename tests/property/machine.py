"""Applies the same steps to the store and to the model, and compares them after each step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stagepost.database.statement import Operation
from stagepost.errors import BatchError, JobError
from stagepost.model.job import LeasedJob, NewJob, microseconds
from stagepost.model.outcome import Completed, Outcome
from stagepost.store import cancelling, counting, history, jobs, leases, queues, settling
from stagepost.store.settlement import Settlement
from tests.limits import unblock
from tests.property.model import ALL_QUEUES, CRASHES_ALLOWED, Model
from tests.property.strategies import (
    ANY,
    ATTEMPTS,
    JOBS,
    MARKS,
    OUTCOMES,
    OWNERS,
    QUEUES,
    TASKS,
    job_id_of,
    wishes,
)
from tests.property.world import Rows, World

LEASE = timedelta(seconds=30)
ACTOR = "operator"
MANY = 1000


class JobMachine(RuleBasedStateMachine):
    """Does the same to the store and to the model."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.model: Model = world.begin()
        self.asked: list[list[NewJob]] = []
        self.accepted: set[str] = set()
        self.leases: list[LeasedJob] = []
        self.before = world.expected_rows(self.model)
        self.removed: set[str] = set()
        self.removed_ever: set[str] = set()
        self.is_sound = True

    def pick_job(self, which: tuple[str, int]) -> str:
        kind, number = which
        job_ids = [job.id for job in self.model.live.values() if kind in {"live", job.state}] or self._ids()
        return job_ids[-1 - number % len(job_ids)]

    def pick_lease(self, which: tuple[str, int]) -> LeasedJob:
        kind, number = which
        chosen = [lease for lease in self.leases if self._is_of_kind(lease, kind)] or self.leases
        return chosen[-1 - number % len(chosen)]

    def _is_of_kind(self, lease: LeasedJob, kind: str) -> bool:
        job = self.model.live.get(lease.id)
        is_running = job is not None and job.state == "running"
        return kind == "any" or (is_running and self.model.holds(lease) == (kind == "held"))

    def _ids(self) -> list[str]:
        return [job.id for request in self.asked for job in request]

    def same(self, real: Callable[[], Any], model: Callable[[], Any]) -> Any:
        """Demand the same result, or the same kind of refusal, of both."""
        self.is_sound = False
        outcomes = []
        for side in (real, model):
            try:
                outcomes.append(side())
            except (BatchError, JobError) as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1], f"the store gave {outcomes[0]}, the model {outcomes[1]}"
        return outcomes[0]

    # ---- asking for jobs

    @initialize(wanted=st.lists(wishes(), min_size=2, max_size=5))
    def begin_with_some_jobs(self, wanted: list[dict[str, Any]]) -> None:
        self.enqueue(wanted, "alone", past=False)

    @rule(
        wanted=st.lists(wishes(), min_size=1, max_size=3),
        how=st.sampled_from(["alone", "alone", "commit", "rollback"]),
        past=st.booleans(),
    )
    def enqueue(self, wanted: list[dict[str, Any]], how: str, past: bool) -> None:
        first = len(self._ids())
        request = [
            NewJob(
                id=job_id_of(number),
                payload=f'{{"n":{number}}}',
                context=f'{{"trace":{number}}}' if number % 2 else None,
                available_at=self.model.now - 7 if past and not wish["delay_us"] else None,
                **wish,
            )
            for number, wish in enumerate(wanted, first)
        ]
        self.asked.append(request)
        self._enqueue(request, how)

    @precondition(lambda self: self.asked)
    @rule(which=ANY, how=st.sampled_from(["alone", "commit", "rollback"]))
    def repeat_an_enqueue(self, which: int, how: str) -> None:
        """As the store does after a lost reply, or the caller, which may be much later."""
        self._enqueue(self.asked[-1 - which % len(self.asked)], how)

    def _enqueue(self, request: list[NewJob], how: str) -> None:
        operation: Operation[Any] = jobs.enqueue_many(request)
        if len(request) == 1:
            operation = jobs.enqueue(request[0])
        if how == "rollback":
            self.world.run_in_callers_transaction(operation, commit=lambda _: False)
            return
        run = self.world.run
        if how == "commit":
            run = lambda operation: self.world.run_in_callers_transaction(operation, commit=lambda _: True)  # noqa: E731

        def real() -> list[tuple[str, bool]]:
            enqueued = run(operation)
            return [(one.id, one.is_new) for one in (enqueued if isinstance(enqueued, list) else [enqueued])]

        self.accepted |= {job_id for job_id, is_new in self.same(real, lambda: self.model.enqueue(request)) if is_new}

    # ---- attempts

    @rule(
        owner=st.sampled_from(OWNERS),
        queue_name=st.sampled_from(QUEUES),
        task_names=st.sampled_from([TASKS, TASKS, TASKS[:1]]),
        slots=st.integers(1, 4),
        marks=MARKS,
    )
    def claim(
        self,
        owner: str,
        queue_name: str,
        task_names: tuple[str, ...],
        slots: int,
        marks: dict[int, int] | None = None,
    ) -> None:
        start = marks and {priority: self.model.now + seconds * 1_000_000 for priority, seconds in marks.items()}
        wanted: dict[str, Any] = {"owner": owner, "task_names": task_names, "slots": slots}
        self._claim(
            leases.claim(queue_name, lease=LEASE, marks=start, **wanted),
            lambda: self.model.claim(queue_name, lease_us=microseconds(LEASE), marks=start, **wanted),
        )

    @rule(owner=st.sampled_from(OWNERS), queue_name=st.sampled_from(QUEUES), slots=st.integers(1, 4))
    def claim_limited(self, owner: str, queue_name: str, slots: int) -> None:
        wanted: dict[str, Any] = {"owner": owner, "task_names": TASKS}
        room = self.model.room(queue_name, slots)
        self._claim(
            queues.claim_limited(queue_name, slots=slots, lease=LEASE, **wanted),
            lambda: self.model.claim(queue_name, slots=room, lease_us=microseconds(LEASE), **wanted),
        )

    def _claim(self, operation: Operation[list[LeasedJob]], model: Callable[[], list[str]]) -> None:
        claimed: list[LeasedJob] = []

        def real() -> list[str]:
            claimed.extend(self.world.run(operation))
            return [job.id for job in claimed]

        self.same(real, model)
        for lease in claimed:
            job = self.model.live[lease.id]
            seen = (lease.attempt, lease.failures, lease.crashes, lease.payload, lease.context, lease.owner)
            assert seen == (job.attempts, job.failures, job.crashes, job.payload, job.context, job.locked_by)
        self.leases += claimed

    @rule(owner=st.sampled_from(OWNERS), outcomes=st.lists(OUTCOMES, max_size=4))
    def work(self, owner: str, outcomes: list[Outcome]) -> None:
        """As a worker does: claim all available jobs, settle some of them, and be killed before the rest."""
        self.promote()
        self.unblock()
        first = len(self.leases)
        for queue_name in QUEUES:
            self.claim(owner, queue_name, TASKS, 3)
        ended = list(zip(self.leases[first:], outcomes, strict=False))
        self._settle(ended)

    @rule(owner=st.sampled_from(OWNERS))
    def crash(self, owner: str) -> None:
        """As a worker does that claims, and is killed; its jobs are rescued."""
        first = len(self.leases)
        self.work(owner, [])
        for lease in self.leases[first:]:
            self._begin(lease)
        self.wait(LEASE.total_seconds() + 1)
        self.rescue(0)

    @precondition(lambda self: self.leases)
    @rule(which=ATTEMPTS)
    def begin(self, which: tuple[str, int]) -> None:
        """Including jobs that have already started, and jobs that now belong to another owner."""
        self._begin(self.pick_lease(which))

    def _begin(self, lease: LeasedJob) -> None:
        self.same(lambda: self.world.run(leases.mark_started(lease)), lambda: self.model.begin(lease))

    @precondition(lambda self: self.leases)
    @rule(owner=st.sampled_from(OWNERS))
    def renew(self, owner: str) -> None:
        """Also leases lost long ago, and those of others."""
        fences = [(lease.id, lease.attempt) for lease in self.leases]

        def real() -> tuple[set[Any], set[Any]]:
            renewed = self.world.run(leases.renew(fences, owner=owner, lease=LEASE))
            return set(renewed.held), set(renewed.asked_to_stop)

        self.same(real, lambda: self.model.renew(self.leases, owner=owner, lease_us=microseconds(LEASE)))

    @precondition(lambda self: self.leases)
    @rule(endings=st.lists(st.tuples(ATTEMPTS, OUTCOMES), min_size=1, max_size=3), times=st.sampled_from([1, 1, 2]))
    def settle(self, endings: list[tuple[tuple[str, int], Outcome]], times: int) -> None:
        """Current and stale attempts; twice, as after a lost reply."""
        ended = [(self.pick_lease(which), outcome) for which, outcome in endings]
        for _ in range(times):
            self._settle(ended)

    def _settle(self, ended: list[tuple[LeasedJob, Outcome]]) -> None:
        operation = settling.settle([Settlement.of(lease, outcome) for lease, outcome in ended])
        self.same(lambda: self.world.run(operation), lambda: self.model.settle(ended))

    @precondition(lambda self: self.leases)
    @rule(
        which=ATTEMPTS,
        outcome=st.just(Completed('"in the transaction"')) | OUTCOMES,
        commits=st.sampled_from([True, True, False]),
        times=st.sampled_from([1, 1, 2]),
    )
    def settle_in_the_handlers_transaction(
        self, which: tuple[str, int], outcome: Outcome, commits: bool, times: int
    ) -> None:
        """With an effect that must happen once; twice, as by a handler that repeats what it has no reply to."""
        lease = self.pick_lease(which)
        fence = (lease.id, lease.attempt)
        effect = [fence] if isinstance(outcome, Completed) else []
        operation = settling.settle([Settlement.of(lease, outcome)], ended_counts=False)
        for _ in range(times):
            self.is_sound = False
            holds = self.model.holds(lease)
            held = self.world.run_in_callers_transaction(
                operation, effect=effect, commit=lambda held: held[fence] and commits
            )
            assert held == {fence: holds}
            if holds and commits:
                self.model.settle([(lease, outcome)])
                self.model.ledger += effect

    @rule(owner=st.sampled_from(OWNERS), forgets=st.booleans())
    def release_unknown_leases(self, owner: str, forgets: bool) -> None:
        """As after a claim whose reply was lost."""
        held = set() if forgets else {(lease.id, lease.attempt) for lease in self.leases}
        operation = leases.release_unknown_leases(owner=owner, held=sorted(held))
        self.same(lambda: set(self.world.run(operation)), lambda: self.model.release_unknown_leases(owner, held))

    # ---- time and upkeep

    @rule(seconds=st.sampled_from([0.000001, 1, 10, 31, 100]))
    def wait(self, seconds: float) -> None:
        self.model.now = self.world.advance(seconds)

    @rule(grace=st.sampled_from([0, 5]))
    def rescue(self, grace: int) -> None:
        def real() -> set[tuple[str, str]]:
            rescued = self.world.run(leases.rescue_expired(grace=timedelta(seconds=grace)))
            named = {"queued": rescued.queued, "dead_letter": rescued.buried, "cancelled": rescued.cancelled}
            return {(job_id, state) for state, job_ids in named.items() for job_id in job_ids}

        self.same(real, lambda: self.model.rescue(grace * 1_000_000))

    @rule()
    def promote(self) -> None:
        self.same(lambda: self.world.run(leases.promote_due()), self.model.promote)

    @rule()
    def unblock(self) -> None:
        self.same(lambda: self.world.run(unblock()), self.model.unblock)

    @rule(most=st.sampled_from([1, 3, MANY]))
    def fold(self, most: int) -> None:
        self.world.run(counting.fold(most=most))

    @rule(older=st.sampled_from([0, 60]))
    def prune(self, older: int) -> None:
        there = set(self.model.ended)
        operation = history.prune(timedelta(seconds=older), most=MANY)
        self.same(lambda: self.world.run(operation), lambda: self.model.prune(older * 1_000_000))
        self.removed |= there - set(self.model.ended)

    # ---- operators

    @rule(which=JOBS)
    def cancel(self, which: tuple[str, int]) -> None:
        job_id = self.pick_job(which)
        self.same(
            lambda: str(self.world.run(cancelling.cancel_job(job_id, actor=ACTOR))),
            lambda: self.model.cancel(job_id, ACTOR),
        )

    @precondition(lambda self: self.model.ended)
    @rule(which=st.lists(ANY, min_size=1, max_size=3), repeated=st.booleans())
    def restart(self, which: list[int], repeated: bool) -> None:
        ended = sorted(self.model.ended)
        job_ids = [ended[number % len(ended)] for number in which]
        operation = jobs.restart(job_ids, actor=ACTOR)
        operation = operation.repeated() if repeated else operation
        self.same(lambda: set(self.world.run(operation)), lambda: self.model.restart(job_ids, ACTOR))

    @rule(which=ANY)
    def discard(self, which: int) -> None:
        job_id = self._ids()[-1 - which % len(self._ids())]
        operation = history.discard([job_id], actor=ACTOR)
        self.removed |= self.same(
            lambda: set(self.world.run(operation).ids), lambda: self.model.discard([job_id], ACTOR)
        )

    @rule(queue_name=st.sampled_from([*QUEUES, ALL_QUEUES]), resumes=st.sampled_from([True, True, False]))
    def pause_or_resume(self, queue_name: str, resumes: bool) -> None:
        operation = queues.resume if resumes else queues.pause
        self.world.run(operation(queue_name, actor=ACTOR))
        (self.model.resume if resumes else self.model.pause)(queue_name, ACTOR)

    @rule(queue_name=st.sampled_from([*QUEUES, ALL_QUEUES]), max_running=st.sampled_from([None, 1, 2]))
    def limit_queue(self, queue_name: str, max_running: int | None) -> None:
        self.world.run(queues.set_limits(queue_name, max_running=max_running, rate=None, actor=ACTOR))
        self.model.limit(queue_name, max_running, ACTOR)

    # ---- what must hold after every step

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        rows, expected = self.world.rows(), self.world.expected_rows(self.model)
        for table, held in rows.tables.items():
            assert held == expected.tables[table], f"{table} is not as the model says"
        counts = self.world.run(counting.count_by_queue())
        numbers = {(queue, state): jobs for queue, states in counts.items() for state, jobs in states.items() if jobs}
        assert numbers == self.model.counts(), "the counts are not as the model says"
        self.check_invariants_of_rows(rows)
        self.removed_ever = (self.removed_ever | self.removed) - set(rows.attempts())
        self.before, self.removed, self.is_sound = rows, set(), True

    def check_invariants_of_rows(self, rows: Rows) -> None:
        """I2, I4, I6 and I11, from the rows alone: a mistake that store and model share shows here."""
        live, ended = rows.states("stagepost_job"), rows.states("stagepost_job_history")
        assert not live.keys() & ended.keys(), "a job is live and ended at once"
        for job_id in set(ledger := [job_id for job_id, _ in rows.tables["ledger"]]):
            times_begun = self.model.born.count(job_id) + rows.restarts(job_id)
            assert ledger.count(job_id) <= times_begun, "I2: an effect happened twice"
        for job_id, state in self.before.states("stagepost_job_history").items():
            may_leave = job_id in self.removed or rows.restarts(job_id) > self.before.restarts(job_id)
            assert job_id in ended or may_leave, f"I6: job {job_id} was {state} and is not any more"
        attempts_before = self.before.attempts()
        for row in [*rows.tables["stagepost_job"], *rows.tables["stagepost_job_history"]]:
            job_id, state, attempts, failures, crashes, most = row[0], row[3], *row[5:9]
            assert attempts >= attempts_before.get(job_id, 0), "I4: an attempt's number fell"
            assert failures <= most, "I11: more failures than attempts allowed"
            assert crashes <= CRASHES_ALLOWED, "I11: more crashes than allowed"
            assert failures + crashes <= attempts, "I11: more went wrong than was tried"
            assert state not in {"failed", "dead_letter"} or row[-2], "I11: it failed for no reason"

    def teardown(self) -> None:
        """Let all work finish: every accepted job must have ended, as often as it was started."""
        if not self.is_sound:
            return  # what went wrong is told already
        for queue_name in QUEUES:
            self.pause_or_resume(queue_name, resumes=True)
        for _ in range(MANY):
            if not self.model.live:
                break
            self.wait(3600)
            self.rescue(0)
            self.promote()
            self.unblock()
            for queue_name in QUEUES:
                self.claim(OWNERS[0], queue_name, TASKS, MANY)
            self._settle([(lease, Completed()) for lease in self.leases if self.model.holds(lease)])
        self.the_store_is_as_the_model_says()
        assert not self.before.tables["stagepost_job"], "jobs are left that never end"
        assert self.before.states("stagepost_job_history").keys() == self.accepted - self.removed_ever
        for job_id in self.accepted:
            times_begun = self.model.born.count(job_id) + self.before.restarts(job_id)
            assert self.model.ends.count(job_id) == times_begun, f"job {job_id} did not end once for each time it began"
