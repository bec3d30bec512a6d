"""`stagepost events`: what it lists, and what it prints as it happens."""

from __future__ import annotations

import json
import time
from datetime import timedelta

from stagepost.store.events import prune_events
from tests.acceptance.cli.command_line import CommandLine
from tests.acceptance.helpers import LIMIT


def test_events_are_listed_in_order_with_filters(shop_anywhere: CommandLine) -> None:
    shop = shop_anywhere
    mailed, refused, failed = shop.enqueue("mail", '"ada"'), shop.enqueue("refuse", "7"), shop.enqueue("fail", "5")
    shop.work()

    found = shop.json("events", "list")["events"]

    assert {event["subject"]: event["type"] for event in found} == {
        mailed: "job.completed",
        refused: "job.failed",
        failed: "job.dead_lettered",
    }
    assert [event["sequence"] for event in found] == ["1", "2", "3"]
    only = shop.json("events", "list", "--task", "shop.mail")["events"]
    assert [event["subject"] for event in only] == [mailed]
    dead = shop.json("events", "list", "--type", "job.failed", "--type", "job.dead_lettered")["events"]
    assert {event["subject"] for event in dead} == {refused, failed}
    shown = shop.says("events", "list")
    assert "order # has no address" in shown
    assert mailed in shown


def test_a_list_continues_where_the_previous_page_ended(shop: CommandLine) -> None:
    for number in range(3):
        shop.enqueue("mail", f'"{number}"')
    shop.work()

    first = shop.json("events", "list", "--limit", "2")
    second = shop.json("events", "list", "--limit", "2", "--after", str(first["next_after"]))

    assert first["next_after"] == 2
    assert [event["sequence"] for event in second["events"]] == ["3"]
    assert second["next_after"] is None
    assert "Continue with --after 2" in shop.run("events", "list", "--limit", "2").stderr
    assert shop.says("events", "list", "--after", "3").strip() == "No events."


def test_tail_prints_one_event_per_line(shop: CommandLine) -> None:
    mailed, refused = shop.enqueue("mail", '"ada"'), shop.enqueue("refuse", "7")
    shop.work()

    tail = ("events", "tail", "--after", "0", "--limit", "2")
    lines = shop.says(*tail).splitlines()
    documents = [json.loads(line) for line in shop.says(*tail, "--json").splitlines()]

    assert {job_id for line in lines for job_id in (mailed, refused) if job_id in line} == {mailed, refused}
    assert {document["subject"] for document in documents} == {mailed, refused}


def test_tail_starts_with_what_happens_next(shop: CommandLine) -> None:
    shop.enqueue("mail", '"ada"')
    shop.work()
    give_up_at = time.monotonic() + LIMIT
    with shop.start("events", "tail", "--limit", "1", "--json") as tail:
        try:
            while tail.poll() is None and time.monotonic() < give_up_at:
                shop.says("jobs", "cancel", shop.enqueue("mail", '"bob"'))
        finally:
            tail.kill()
        assert tail.stdout is not None
        document = json.loads(tail.stdout.read())

    assert document["type"] == "job.cancelled"
    assert int(document["sequence"]) > 1


def test_tail_says_which_events_were_deleted(shop: CommandLine) -> None:
    for _ in range(3):
        shop.says("jobs", "cancel", shop.enqueue("mail", '"ada"'))
    shop.says("events", "list")
    shop.store.run(prune_events(timedelta(0), keep=1))

    said = shop.fails(1, "events", "tail", "--after", "1")

    assert "continue with after=2" in said
