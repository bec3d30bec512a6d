"""Families under any order of steps: counts equal rows, parents end after their children, nothing waits forever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from stagepost.database import Store
from stagepost.database.migrate import migrate
from stagepost.errors import Cancelled, ChildDiffers, IllegalTransition, LeaseLost
from stagepost.model.children import DeferredOutcome, NewChild, OnChildFailed
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob, NewJob
from stagepost.model.lifecycle import FINAL, JobState
from stagepost.model.outcome import Abandoned, Completed, Failed, Outcome, Refused, Released, Snoozed
from stagepost.store import batches, cancelling, concluding, counting, jobs, leases, settling
from stagepost.store.children import submit_children
from stagepost.store.settlement import Settlement
from stagepost.testing.clock import ManualClock
from tests.conformance.bench import patient_store, tables_of
from tests.depth import sized
from tests.property.family_model import Verdict, verdict_on

LEASE = timedelta(seconds=30)
QUEUE, TASK = "families", "member"
TABLES = ("stagepost_job", "stagepost_job_history", "stagepost_batch", "stagepost_count", "stagepost_move")
ROWS = "select id, batch_id, state from stagepost_job union all select id, batch_id, state from stagepost_job_history"
MOST_JOBS = 40


def new_member(number: int = 0) -> NewJob:
    payload = f'{{"number":{number}}}'
    return NewJob(id=new_id(), task_name=TASK, queue_name=QUEUE, payload=payload, max_attempts=2)


class Families:
    """A store, the attempts that run, and what may happen to them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = store.clock = ManualClock()
        self.held: list[LeasedJob] = []
        self.verdicts: dict[str, Verdict] = {}
        """Of jobs whose last attempt is over."""
        self.run_again: set[str] = set()
        """Children that somebody restarted: they may live while their parent has ended."""
        with store.transaction() as connection:
            for table in tables_of(self.store.dialect):
                connection.execute(f"delete from {table}", {})

    def rows(self) -> dict[str, tuple[str | None, JobState]]:
        """Every job's batch and state."""
        with self.store.transaction(read_only=True) as connection:
            return {
                str(job): (batch and str(batch), JobState(state)) for job, batch, state in connection.execute(ROWS, {})
            }

    def batches(self) -> dict[str, tuple[str, bool]]:
        """Every batch's state, and whether it is cancelled."""
        with self.store.transaction(read_only=True) as connection:
            found = connection.execute("select id, state, cancelled_at is not null from stagepost_batch", {})
            return {str(batch): (state, bool(is_cancelled)) for batch, state, is_cancelled in found}

    def marks(self) -> dict[str, tuple[bool, bool]]:
        """Whether each live job is asked to stop, and whether it has children."""
        with self.store.transaction(read_only=True) as connection:
            found = connection.execute(
                "select id, cancel_requested_at is not null, has_children from stagepost_job", {}
            )
            return {str(job): (bool(asked), bool(has_children)) for job, asked, has_children in found}

    def enqueue(self, chance: Random) -> None:
        if len(self.rows()) < MOST_JOBS:
            self.store.run(jobs.enqueue(new_member(chance.randrange(3))))

    def claim(self, chance: Random) -> None:
        slots = chance.randint(1, 3)
        self.held += self.store.run(
            leases.claim(QUEUE, owner=chance.choice("ab"), task_names=[TASK], slots=slots, lease=LEASE)
        )

    def submit(self, chance: Random) -> None:
        if not self.held or len(self.rows()) >= MOST_JOBS:
            return
        children = [
            NewChild(new_member(number), chance.choice([None, "x", "y"]), number)
            for number in range(chance.randint(1, 3))
        ]
        try:
            self.store.run(submit_children(chance.choice(self.held), children))
        except (LeaseLost, Cancelled, ChildDiffers):
            return

    def settle(self, chance: Random) -> None:
        if not self.held:
            return
        job = self.held.pop(chance.randrange(len(self.held)))
        outcomes: list[Outcome] = [
            Completed("1"),
            Completed("2", DeferredOutcome(on_child_failed=OnChildFailed.FAIL)),
            Completed("3", DeferredOutcome(then=new_member())),
            *(Failed("no", timedelta(0)), Refused("no"), Abandoned("no"), Snoozed(timedelta(0)), Released()),
        ]
        self.give(job, chance.choice(outcomes))
        if chance.random() < 0.5:  # else the worker dies before it concludes
            self.conclude(job.batch_id)

    def give(self, job: LeasedJob, outcome: Outcome) -> None:
        is_asked_to_stop, has_children = self.marks().get(job.id, (False, False))
        [is_held] = self.store.run(settling.settle([Settlement.of(job, outcome)], ended_counts=False)).values()
        verdict = verdict_on(
            outcome,
            is_last=job.failures + 1 >= job.max_attempts,
            is_asked_to_stop=is_asked_to_stop,
            has_children=has_children,
        )
        if is_held and verdict is not None:
            self.verdicts[job.id] = verdict

    def conclude(self, batch_id: str | None) -> None:
        while batch_id is not None:
            batch_id = concluding.follow_up(self.store.run(concluding.conclude(batch_id)))

    def cancel(self, chance: Random) -> None:
        live = [job for job, (_, state) in self.rows().items() if state not in FINAL]
        if live:
            try:
                self.store.run(cancelling.cancel_job(chance.choice(live), actor="ann"))
            except IllegalTransition:
                return

    def restart(self, chance: Random) -> None:
        ended = [job for job, (_, state) in self.rows().items() if state in FINAL]
        if ended:
            self.run_again |= set(self.store.run(jobs.restart([chance.choice(ended)], actor="ann")))

    def lose(self, chance: Random) -> None:
        self.clock.advance(LEASE + timedelta(seconds=1))
        rescued = self.store.run(leases.rescue_expired(grace=timedelta(0), most=chance.randint(1, 3)))
        self.verdicts |= dict.fromkeys(rescued.buried, Verdict(JobState.DEAD_LETTER))
        self.verdicts |= dict.fromkeys(rescued.cancelled, Verdict(JobState.CANCELLED))

    def promote(self, _: Random) -> None:
        self.store.run(leases.promote_due())

    def keep(self, _: Random) -> None:
        """What upkeep does."""
        for batch_id in self.store.run(batches.cancelled_batches()):
            self.store.run(cancelling.cancel_items(batch_id))
        for batch_id in self.store.run(batches.idle_batches()):
            self.conclude(batch_id)

    def check(self) -> None:
        rows, batches_now = self.rows(), self.batches()
        self.check_verdicts(rows, batches_now)
        for batch_id, (state, _) in batches_now.items():
            found = Counter(member for batch, member in rows.values() if batch == batch_id)
            counts = self.store.run(counting.count_items(batch_id))
            assert {one: getattr(counts, one) for one in JobState if getattr(counts, one)} == dict(found)
            _, parent = rows[batch_id]
            if state == "sealed":
                assert parent is JobState.WAITING
            if state == "open":
                assert parent not in FINAL | {JobState.WAITING}
        for job, (batch, state) in rows.items():
            if state is JobState.WAITING:
                assert batches_now[job][0] == "sealed"
            if batch is not None and rows[batch][1] in FINAL and state not in FINAL:
                assert job in self.run_again, "it outlived its parent"

    def check_verdicts(
        self, rows: dict[str, tuple[str | None, JobState]], batches_now: dict[str, tuple[str, bool]]
    ) -> None:
        """Compare jobs that wait no more with what the model says of them."""
        for job, verdict in list(self.verdicts.items()):
            if rows[job][1] is not JobState.WAITING:
                children = [state for batch, state in rows.values() if batch == job]
                _, is_cancelled = batches_now.get(job, ("", False))
                assert rows[job][1] is verdict.state_after(children, is_cancelled=is_cancelled), (verdict, children)
                del self.verdicts[job]

    def finish(self, chance: Random) -> None:
        """Run everything to its end, with upkeep alone to conclude."""
        self.held.clear()
        for _ in range(200):
            if not any(state not in FINAL for _, state in self.rows().values()):
                break
            self.lose(chance)
            self.promote(chance)
            leased = self.store.run(leases.claim(QUEUE, owner="c", task_names=[TASK], slots=10, lease=LEASE))
            for job in leased:
                self.give(job, Completed())
            self.keep(chance)
            self.check_verdicts(self.rows(), self.batches())
        assert {state for _, state in self.rows().values()} <= FINAL
        assert {state for state, _ in self.batches().values()} <= {"done"}
        self.check()


ACTIONS: tuple[Callable[[Families, Random], None], ...] = (
    *(Families.enqueue, Families.claim, Families.claim, Families.submit, Families.submit, Families.submit),
    *(Families.settle, Families.settle, Families.settle, Families.cancel, Families.restart),
    *(Families.lose, Families.promote, Families.promote, Families.keep),
)


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mariadb"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "sqlite":
        url = "sqlite://"
    else:
        url = request.getfixturevalue(f"{request.param}_server").fresh_database()
    with closing(patient_store(url)) as store:
        migrate(store)
        yield store


STEPS = st.lists(st.tuples(st.integers(0, len(ACTIONS) - 1), st.integers(0, 2**32)), min_size=40, max_size=80)


def test_families_under_any_order_of_steps(store: Store) -> None:
    @seed(1)
    @settings(
        max_examples=sized(15, 120) if store.dialect.name == "sqlite" else sized(4, 25),
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(steps=STEPS)
    def search(steps: list[tuple[int, int]]) -> None:
        families = Families(store)
        families.enqueue(Random(0))  # noqa: S311 - repeatable, not secret
        for action, number in steps:
            ACTIONS[action](families, Random(number))  # noqa: S311
            families.check()
        families.finish(Random(1))  # noqa: S311

    search()
