"""`stagepost dead` with messages that belong to no job."""

from __future__ import annotations

import re
from typing import Any

from stagepost.model.dead_letter import DeadMessage
from stagepost.model.identity import new_id
from stagepost.store.activity import actions_on
from stagepost.store.dead_messages import add_dead_messages, dead_messages
from stagepost.store.outbox import next_messages
from tests.acceptance.cli.command_line import CommandLine


def keep_dead_message(shop: CommandLine, number: int, **changes: Any) -> DeadMessage:
    facts = {
        "id": new_id(),
        "queue": "task.default",
        "routing_key": "task.default",
        "message_id": f"m{number}",
        "correlation_id": None,
        "error": f"JSON is malformed (byte {number})",
        "headers": {"n": number},
        "body": f"{{broken {number}".encode(),
    }
    message = DeadMessage(**{**facts, **changes})
    shop.store.run(add_dead_messages([message]))
    return message


def test_dead_messages_are_listed_with_dead_jobs(shop: CommandLine) -> None:
    job_id = shop.enqueue("refuse", "1")
    shop.work()
    first, second = keep_dead_message(shop, 1), keep_dead_message(shop, 2)

    groups = shop.json("dead", "list")["groups"]
    page = shop.json("dead", "list", "--jobs", "--limit", "2")
    rest = shop.json("dead", "list", "--limit", "2", "--before", page["next_before"])
    of_group = shop.json("dead", "group", groups[0]["group"])
    text = shop.says("dead", "list", "--jobs")

    assert [(one["kind"], one["task"], one["queue"], one["jobs"]) for one in groups] == [
        ("messages", None, "task.default", 2),
        ("jobs", "shop.refuse", None, 1),
    ]
    assert [one["id"] for one in page["messages"]] == [second.id, first.id]
    assert [(one["kind"], one["id"]) for one in rest["jobs"]] == [("job", job_id)]
    assert {one["id"] for one in of_group["messages"]} == {first.id, second.id}
    assert of_group["jobs"] == []
    assert re.search(rf"{first.id} +message +task\.default", text)
    assert re.search(rf"{job_id} +job +shop\.refuse", text)


def test_a_dead_message_is_shown(shop: CommandLine) -> None:
    message = keep_dead_message(shop, 1, body=b'{"a": 1}')

    document = shop.json("dead", "show", message.id)

    assert (document["kind"], document["body"], document["routing_key"]) == ("message", {"a": 1}, "task.default")
    assert "JSON is malformed (byte 1)" in shop.says("dead", "show", message.id)


def test_dead_messages_are_retried_in_the_order_in_which_they_came(shop: CommandLine) -> None:
    job_id = shop.enqueue("refuse", "1")
    shop.work()
    kept = [keep_dead_message(shop, number) for number in range(3)]

    text = shop.says("dead", "retry", "--all", "--yes")

    assert text == "4 dead letters are queued again.\n"
    assert [waiting.message.body for waiting in shop.store.run(next_messages(most=9))] == [one.body for one in kept]
    assert shop.json("jobs", "show", job_id)["state"] == "queued"
    assert shop.store.run(dead_messages()) == []
    assert [action.action for action in shop.store.run(actions_on(kept[0].id))] == ["retry"]


def test_a_dead_message_that_belongs_nowhere_is_refused(shop: CommandLine) -> None:
    lost, known = keep_dead_message(shop, 1, routing_key=""), keep_dead_message(shop, 2)

    message = shop.fails(1, "dead", "retry", lost.id, known.id)

    assert f"Message {lost.id} cannot be sent again" in message
    assert [one.id for one in shop.store.run(dead_messages())] == [lost.id]
    assert len(shop.store.run(next_messages(most=9))) == 1


def test_a_dead_message_is_discarded_only_after_confirmation(shop: CommandLine) -> None:
    message = keep_dead_message(shop, 1)
    group = shop.json("dead", "list")["groups"][0]["group"]

    assert "confirm with --yes" in shop.fails(2, "dead", "discard", message.id)
    assert "of queue task.default" in shop.fails(2, "dead", "discard", "--group", group)
    assert shop.says("dead", "discard", "--group", group, "--yes") == "One dead letter is deleted.\n"
    assert shop.store.run(dead_messages()) == []
    assert [action.action for action in shop.store.run(actions_on(message.id))] == ["discard"]
