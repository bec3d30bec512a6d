"""Messages in the outbox, and messages from the broker's dead letter queue."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from stagepost.database.statement import Statement
from stagepost.model.dead_letter import DeadMessage, Letter, Undelivered, Unreadable, stray
from stagepost.model.envelope import Message
from stagepost.model.identity import new_id
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Refused
from stagepost.store import jobs, leases, settling
from stagepost.store.activity import actions_on
from stagepost.store.dead_messages import (
    add_dead_messages,
    count_dead_messages,
    dead_message_groups,
    dead_messages,
    discard_dead_messages,
    end_undelivered,
    find_dead_message,
    known_jobs,
    next_dead_messages,
    retry_dead_messages,
)
from stagepost.store.history import prune
from stagepost.store.outbox import (
    add_messages,
    add_unreadable,
    delete_messages,
    mark_announced,
    next_messages,
    unannounced,
)
from stagepost.store.sending import backlog, mark_sent
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.plans import analyze, plan_of
from tests.conformance.samples import LEASE, new_job

DAY = timedelta(days=1)
KEYS = {"routing_key": "task.dlq", "asked_by": "task.mail"}


def message(number: int, **changes: Any) -> Message:
    facts = {
        "routing_key": f"task.{number}",
        "body": f'{{"n":{number}}}'.encode(),
        "message_id": f"m{number}",
        "correlation_id": f"c{number}",
        "headers": {"taskType": "mail", "attempt": number},
    }
    return Message(**{**facts, **changes})


def dead(number: int, **changes: Any) -> DeadMessage:
    facts = {
        "id": new_id(),
        "queue": f"task.queue{number}",
        "routing_key": f"task.key{number}",
        "message_id": f"m{number}",
        "correlation_id": f"c{number}",
        "error": f"bad number {number}",
        "headers": {"a": number, "x-death": [{"reason": "expired"}]},
        "body": f"body {number}".encode(),
    }
    return DeadMessage(**{**facts, **changes})


def fail(store: Bench, **changes: Any) -> str:
    """Let one job end failed; returns its id."""
    job = new_job(**changes)
    store.run(jobs.enqueue(job))
    claimed = leases.claim(job.queue_name, owner="worker-a", task_names=[job.task_name], slots=1, lease=LEASE)
    [leased] = store.run(claimed)
    store.run(settling.settle([Settlement.of(leased, Refused("no such file"))]))
    return job.id


def test_the_outbox_gives_messages_in_order_until_they_are_deleted(store: Bench) -> None:
    binary = message(3, body=b"\xff\x00", correlation_id=None)
    store.run(add_messages([message(1), message(2)]))
    store.run(add_messages([binary]))

    first = store.run(next_messages(most=2))
    rest = store.run(next_messages(after=first[-1].id, most=2))
    store.run(delete_messages([first[0].id, rest[0].id]))

    assert [waiting.message for waiting in first + rest] == [message(1), message(2), binary]
    assert [waiting.message for waiting in store.run(next_messages(most=9))] == [message(2)]


def test_a_message_that_cannot_be_read_is_wrapped_and_found_again_as_it_was(store: Bench) -> None:
    bodies = [b'{"a": [1, 2]}', b"no {json", b"\xff\xfe\x00"]
    store.run(
        add_unreadable(
            [
                Unreadable(queue="task.q", routing_key="task.k", body=body, error="broken", message_id="m")
                for body in bodies
            ],
            routing_key="task.dlq",
        )
    )

    wrapped = [waiting.message for waiting in store.run(next_messages(most=9))]

    assert {one.routing_key for one in wrapped} == {"task.dlq"}
    first, second, _ = (json.loads(one.body) for one in wrapped)
    assert first["original_message"] == {"a": [1, 2]}
    assert second["original_message"] == "no {json"
    assert (first["failure_reason"], first["attempt"]) == ("broken", 1)
    assert first["failed_at"].endswith("Z")
    found = [stray(Letter(body=one.body, headers=one.headers, message_id=one.message_id)) for one in wrapped]
    assert [(one.body, one.queue, one.routing_key, one.message_id, one.error) for one in found] == [
        (body, "task.q", "task.k", "m", "broken") for body in bodies
    ]


def test_permanently_failed_jobs_are_announced_once(store: Bench) -> None:
    job_id = fail(store, queue_name="mail", task_name="send", payload='{"to":"ada"}')
    fail(store, queue_name="other", task_name="send")

    found = store.run(unannounced("mail", JobState.FAILED, since=0, most=9, **KEYS))
    store.run(mark_announced(found.fences))

    [notice] = found.notices
    body = json.loads(notice.body)
    assert (notice.routing_key, notice.message_id) == ("task.dlq", f"{job_id}.1.dead")
    assert body["original_message"]["task_id"] == job_id
    assert body["original_message"]["payload"] == {"to": "ada"}
    assert (body["failure_reason"], body["attempt"]) == ("no such file", 1)
    assert found.finished_at == [found.now]
    assert store.run(unannounced("mail", JobState.FAILED, since=0, most=9, **KEYS)).notices == []
    assert store.run(unannounced("other", JobState.FAILED, since=0, most=9, **KEYS)).notices


def test_only_jobs_that_ended_since_are_read(store: Bench) -> None:
    fail(store, queue_name="mail")
    store.clock.advance(5)

    assert store.run(unannounced("mail", JobState.FAILED, since=store.now, most=9, **KEYS)).notices == []
    assert store.run(unannounced("mail", JobState.DEAD_LETTER, since=0, most=9, **KEYS)).notices == []


def test_a_job_that_was_restarted_and_failed_again_is_announced_again(store: Bench) -> None:
    job_id = fail(store, queue_name="mail")
    old = store.run(unannounced("mail", JobState.FAILED, since=0, most=9, **KEYS))
    store.run(jobs.restart([job_id], actor="ada"))
    job = store.run(jobs.get(job_id))
    claimed = leases.claim("mail", owner="worker-a", task_names=[job.task_name], slots=1, lease=LEASE)
    [leased] = store.run(claimed)
    store.run(settling.settle([Settlement.of(leased, Refused("again"))]))

    store.run(mark_announced(old.fences))  # by a relay that was paused

    new = store.run(unannounced("mail", JobState.FAILED, since=0, most=9, **KEYS))
    assert new.fences == [(job_id, 2)]


def test_looking_for_what_to_announce_reads_an_index(blocking_store: Bench) -> None:
    store = blocking_store
    for _ in range(3):
        fail(store, queue_name="mail")
    analyze(store, "stagepost_job_history")

    facts = {"queue_name": "mail", "state": "failed", "since": 0, "most": 100}
    plan = plan_of(store, Statement("unannounced_jobs", facts))

    assert plan.read_whole == frozenset()
    assert "stagepost_job_history_ended" in plan.text


def test_a_request_that_the_broker_dropped_ends_its_job_and_counts_in_its_batch(store: Bench) -> None:
    waiting, moved_on = new_job(queue_name="mail"), new_job(queue_name="mail")
    store.run(jobs.enqueue_many([waiting, moved_on]))
    store.run(mark_sent([(waiting.id, 1), (moved_on.id, 1)]))
    requests = [
        Undelivered(waiting.id, 1, "expired", "task.mail"),
        Undelivered(moved_on.id, 2, "expired", "task.mail"),
        Undelivered(new_id(), 1, "rejected", "task.mail"),
    ]

    undelivered = store.run(end_undelivered(requests))
    again = store.run(end_undelivered(requests))

    assert undelivered.ended == [waiting.id]
    assert again.ended == []
    assert store.run(jobs.get(waiting.id)).state is JobState.DEAD_LETTER
    assert "before a consumer took it" in (store.run(jobs.get(waiting.id)).error or "")
    assert store.run(jobs.get(moved_on.id)).state is JobState.QUEUED
    known = store.run(known_jobs([waiting.id, moved_on.id, requests[2].job_id]))
    assert (known.ended, known.live) == (frozenset({waiting.id}), frozenset({moved_on.id}))


def test_a_scheduled_job_is_not_ended_by_an_old_request(store: Bench) -> None:
    job = new_job(queue_name="mail", delay_us=60_000_000)
    store.run(jobs.enqueue(job))

    assert store.run(end_undelivered([Undelivered(job.id, 1, "expired", "task.mail")])).ended == []


def test_a_dead_message_is_stored_once_and_comes_back_as_it_was(store: Bench) -> None:
    one = dead(1, body=b"\xff\x00")
    store.run(add_dead_messages([one]))
    store.clock.advance(1)
    store.run(add_dead_messages([one]))

    [found] = store.run(dead_messages())

    assert found == DeadMessage(**{**_fields(one), "received_at": store.now - 1_000_000})
    assert store.run(find_dead_message(one.id)) == found
    assert store.run(find_dead_message(new_id())) is None
    assert store.run(count_dead_messages()) == 1


def test_dead_messages_are_listed_and_grouped(store: Bench) -> None:
    kept = []
    for number, queue in enumerate(["a", "a", "b"], start=1):
        kept.append(dead(number, queue=queue))
        store.run(add_dead_messages([kept[-1]]))
        store.clock.advance(1)

    page = store.run(dead_messages(most=2))
    rest = store.run(dead_messages(before=(page[-1].received_at, page[-1].id)))
    groups = store.run(dead_message_groups())
    upwards = store.run(next_dead_messages(most=2))

    assert [one.id for one in page + rest] == [one.id for one in reversed(kept)]
    assert [(group.queue, group.reason, group.messages) for group in groups] == [
        ("a", "bad number #", 2),
        ("b", "bad number #", 1),
    ]
    assert [one.id for one in store.run(dead_messages(queue="b", reason="bad number #"))] == [kept[2].id]
    assert [one.id for one in upwards] == [kept[0].id, kept[1].id]
    after = (upwards[-1].received_at, upwards[-1].id)
    assert [one.id for one in store.run(next_dead_messages(after=after, most=9))] == [kept[2].id]


def test_a_dead_message_is_sent_again_in_order_once_and_audited(store: Bench) -> None:
    first, second, lost = dead(1), dead(2), dead(3, routing_key="")
    for one in (first, second, lost):
        store.run(add_dead_messages([one]))
        store.clock.advance(1)

    done = store.run(retry_dead_messages([second.id, first.id, lost.id], actor="ada"))
    again = store.run(retry_dead_messages([second.id, first.id, lost.id], actor="ada"))

    assert (done, again) == ([first.id, second.id], [])
    assert [waiting.message for waiting in store.run(next_messages(most=9))] == [
        Message(one.routing_key, one.body, one.message_id, one.correlation_id, {"a": one.headers["a"]})
        for one in (first, second)
    ]
    assert [one.id for one in store.run(dead_messages())] == [lost.id]
    assert [(action.actor, action.action) for action in store.run(actions_on(first.id))] == [("ada", "retry")]


def test_a_dead_message_is_discarded_and_audited(store: Bench) -> None:
    one = dead(1)
    store.run(add_dead_messages([one]))

    assert store.run(discard_dead_messages([one.id, new_id()], actor="ada")) == [one.id]
    assert store.run(dead_messages()) == []
    assert store.run(next_messages(most=9)) == []
    assert [action.action for action in store.run(actions_on(one.id))] == ["discard"]


def test_concurrent_retries_of_a_dead_message_send_it_once(blocking_store: Bench) -> None:
    one = dead(1)
    blocking_store.run(add_dead_messages([one]))

    done = blocking_store.race(*[retry_dead_messages([one.id], actor="ada") for _ in range(2)])

    assert sorted(map(len, done)) == [0, 1]
    assert len(blocking_store.run(next_messages(most=9))) == 1


def test_old_dead_messages_are_pruned(store: Bench) -> None:
    old, new = dead(1), dead(2)
    store.run(add_dead_messages([old]))
    store.clock.advance(2 * DAY.total_seconds())
    store.run(add_dead_messages([new]))

    store.run(prune(DAY))

    assert [one.id for one in store.run(dead_messages())] == [new.id]


def test_unsent_jobs_are_counted_with_their_longest_wait(store: Bench) -> None:
    sent, waits = new_job(queue_name="mail"), new_job(queue_name="mail")
    store.run(jobs.enqueue_many([sent, waits, new_job(queue_name="other")]))
    store.run(mark_sent([(sent.id, 1)]))
    store.clock.advance(3)

    found = store.run(backlog("mail"))

    assert (found.jobs, found.waits_us) == (1, 3_000_000)
    assert store.run(backlog("mail", most=0)).jobs == 0
    assert store.run(backlog("nothing")).waits_us is None


def _fields(one: DeadMessage) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}
