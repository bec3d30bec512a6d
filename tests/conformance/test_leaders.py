"""One leader at a time, whose term number only grows."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from stagepost.database.async_store import AsyncStore
from stagepost.database.statement import Statement
from stagepost.loops.signals import Signals
from stagepost.store.leaders import Leadership, lead, list_leaders, resign
from stagepost.upkeep.leader import BROKER, Leader
from stagepost.upkeep.sent_job_requeuer import SentJobRequeuer
from tests.conformance.bench import Bench
from tests.conformance.plans import analyze, plan_of
from tests.conformance.sending import send, sent_job

TERM = timedelta(seconds=20)


def test_the_first_to_ask_leads_for_one_term(store: Bench) -> None:
    leadership = store.run(lead("upkeep", owner="a", term=TERM))

    assert leadership == Leadership("upkeep", "a", term=1, expires_at=store.now + 20_000_000)


def test_nobody_else_leads_while_the_term_lasts(store: Bench) -> None:
    store.run(lead("upkeep", owner="a", term=TERM))
    store.clock.advance(TERM - timedelta(microseconds=1))

    assert store.run(lead("upkeep", owner="b", term=TERM)) is None


def test_renewing_extends_the_lead_and_keeps_its_number(store: Bench) -> None:
    store.run(lead("upkeep", owner="a", term=TERM))
    store.clock.advance(TERM / 2)

    leadership = store.run(lead("upkeep", owner="a", term=TERM))

    assert leadership == Leadership("upkeep", "a", term=1, expires_at=store.now + 20_000_000)


def test_an_expired_lead_is_taken_over_with_the_next_number(store: Bench) -> None:
    store.run(lead("upkeep", owner="a", term=TERM))
    store.clock.advance(TERM)

    leadership = store.run(lead("upkeep", owner="b", term=TERM))

    assert leadership is not None
    assert leadership.term == 2
    assert store.run(lead("upkeep", owner="a", term=TERM)) is None


def test_a_leader_that_slept_through_its_term_learns_it_from_a_new_number(store: Bench) -> None:
    store.run(lead("upkeep", owner="a", term=TERM))
    store.clock.advance(TERM)

    leadership = store.run(lead("upkeep", owner="a", term=TERM))

    assert leadership is not None
    assert leadership.term == 2


def test_resigning_lets_another_lead_at_once(store: Bench) -> None:
    store.run(lead("upkeep", owner="a", term=TERM))

    store.run(resign("upkeep", owner="a"))

    assert store.run(list_leaders()) == []
    leadership = store.run(lead("upkeep", owner="b", term=TERM))
    assert leadership is not None
    assert leadership.term == 2


def test_only_the_leader_can_resign(store: Bench) -> None:
    store.run(lead("upkeep", owner="a", term=TERM))

    store.run(resign("upkeep", owner="b"))

    assert store.run(lead("upkeep", owner="b", term=TERM)) is None
    assert [leader.owner for leader in store.run(list_leaders())] == ["a"]


def test_rights_of_other_names_are_apart(store: Bench) -> None:
    store.run(lead("upkeep", owner="a", term=TERM))

    assert store.run(lead("relay", owner="b", term=TERM)) is not None
    assert [(leader.name, leader.owner) for leader in store.run(list_leaders())] == [
        ("relay", "b"),
        ("upkeep", "a"),
    ]


def test_of_concurrent_candidates_one_leads_and_term_numbers_never_repeat(blocking_store: Bench) -> None:
    seen: list[int] = []
    for _ in range(12):
        answers = blocking_store.race(*(lead("upkeep", owner=f"owner-{n}", term=TERM) for n in range(6)))

        leaders = [answer for answer in answers if answer is not None]
        assert len(leaders) == 1
        seen.append(leaders[0].term)
        blocking_store.clock.advance(TERM)
    assert seen == list(range(1, 13))


def test_asking_reads_one_row_by_its_name(blocking_store: Bench) -> None:
    for number in range(50):
        blocking_store.run(lead(f"right-{number}", owner="a", term=TERM))
    analyze(blocking_store, "stagepost_leader")

    parameters = {"name": "right-7", "owner": "a", "term_us": 20_000_000}

    assert plan_of(blocking_store, Statement("lead", parameters)).read_whole == frozenset()
    assert plan_of(blocking_store, Statement("resign", parameters)).read_whole == frozenset()


def test_sent_jobs_are_left_to_workers_with_a_broker_while_there_are_any(blocking_store: Bench) -> None:
    store = blocking_store
    message = sent_job(store)
    own_store = AsyncStore(store.database.store)
    leader = Leader(own_store, Signals(), owner="plain", clock=store.clock)
    uncarried = SentJobRequeuer(own_store, leader, Signals())

    async def look() -> int:
        await leader.run_once()
        return await uncarried.run_once()

    store.run(lead(BROKER, owner="other", term=TERM))
    assert asyncio.run(look()) == 0
    store.run(resign(BROKER, owner="other"))
    store.clock.advance(1)
    assert asyncio.run(look()) == 1
    own_store.close()

    assert send(store) == [message]
