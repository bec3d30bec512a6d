"""`stagepost dead`."""

from __future__ import annotations

import pytest

from tests.acceptance.cli.command_line import CommandLine


def bury(shop: CommandLine, *, refused: int, failed: int) -> list[str]:
    """Let so many jobs fail for good."""
    ids = [shop.enqueue("refuse", str(number)) for number in range(refused)]
    ids += [shop.enqueue("fail", str(number)) for number in range(failed)]
    shop.work()
    return ids


def test_dead_letters_are_grouped_by_reason_and_retried_by_group(shop_anywhere: CommandLine) -> None:
    shop = shop_anywhere
    bury(shop, refused=3, failed=1)
    groups = shop.json("dead", "list")["groups"]

    shop.says("dead", "retry", "--group", groups[0]["group"], "--yes")

    assert [(group["task"], group["jobs"]) for group in groups] == [("shop.refuse", 3), ("shop.fail", 1)]
    assert groups[0]["reason"] == "Permanent: order # has no address"
    assert len(shop.json("jobs", "list", "--state", "queued")["jobs"]) == 3
    assert [group["task"] for group in shop.json("dead", "list")["groups"]] == ["shop.fail"]


def test_one_dead_letter_is_shown(shop: CommandLine) -> None:
    [job_id] = bury(shop, refused=1, failed=0)

    assert "order 0 has no address" in shop.says("dead", "show", job_id)


def test_a_job_that_is_not_a_dead_letter_is_not_shown_as_one(shop: CommandLine) -> None:
    job_id = shop.enqueue("mail", '"ada"')

    assert f"Job {job_id} is queued, not a dead letter." in shop.fails(1, "dead", "show", job_id)


def test_the_jobs_of_a_group_are_listed_page_by_page(shop: CommandLine) -> None:
    ids = bury(shop, refused=3, failed=1)[:3]
    group = shop.json("dead", "list")["groups"][0]["group"]

    first = shop.json("dead", "list", "--group", group, "--limit", "2")
    second = shop.json("dead", "list", "--group", group, "--limit", "2", "--before", first["next_before"])

    assert sorted(job["id"] for job in first["jobs"] + second["jobs"]) == sorted(ids)


def test_single_dead_letters_are_retried_without_confirmation(shop: CommandLine) -> None:
    [job_id] = bury(shop, refused=1, failed=0)

    assert shop.says("dead", "retry", job_id) == "One dead letter is queued again.\n"


@pytest.mark.parametrize("command", [("retry",), ("discard", "--yes")], ids=["retry", "discard"])
def test_a_job_that_ended_well_is_neither_retried_nor_discarded_as_a_dead_letter(
    shop: CommandLine, command: tuple[str, ...]
) -> None:
    job_id = shop.enqueue("mail", '"ada"')
    shop.work()

    message = shop.fails(1, "dead", *command, job_id)

    assert f"Job {job_id} is completed: it cannot be handled as a dead letter" in message
    assert shop.json("jobs", "show", job_id)["state"] == "completed"


def test_all_are_discarded_only_after_confirmation(shop: CommandLine) -> None:
    bury(shop, refused=2, failed=1)

    message = shop.fails(2, "dead", "discard", "--all")
    assert "Delete all 3 dead letters permanently? Without a terminal, confirm with --yes" in message
    assert shop.says("dead", "discard", "--all", "--yes") == "3 dead letters are deleted.\n"
    assert shop.json("dead", "list")["groups"] == []


def test_one_with_a_taken_unique_key_does_not_keep_the_others_from_being_retried(shop: CommandLine) -> None:
    first = shop.enqueue("refuse", "1", "--unique-key", "k")
    second = shop.enqueue("refuse", "2")
    shop.work()
    holder = shop.enqueue("refuse", "3", "--unique-key", "k")

    result = shop.run("dead", "retry", "--all", "--yes", "--json")

    assert result.exit_code == 1
    assert holder in result.stderr
    states = {job["id"]: job["state"] for job in shop.json("jobs", "list")["jobs"]}
    assert (states[first], states[second]) == ("failed", "queued")


def test_dead_letters_must_be_selected_explicitly(shop: CommandLine) -> None:
    assert "Select dead letters" in shop.fails(2, "dead", "retry")
    assert "Select dead letters" in shop.fails(2, "dead", "discard", "--all", "--group", "x")
    assert "There is no group 'x'" in shop.fails(1, "dead", "retry", "--group", "x")


def test_dead_jobs_are_selected_by_task_and_queue(shop: CommandLine) -> None:
    shop.enqueue("refuse", "1")
    shop.enqueue("fail", "1")
    shop.work()

    assert shop.json("dead", "retry", "--task", "shop.fail", "--yes") == {"done": 1, "refused": []}
    assert shop.says("dead", "discard", "--queue", "default", "--yes") == "One dead letter is deleted.\n"
    assert shop.json("dead", "list")["groups"] == []
