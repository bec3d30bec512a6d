"""`stagepost enqueue` and `stagepost jobs`."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import uuid4

import pytest

from stagepost.store.leases import claim, renew
from tests.acceptance.cli.command_line import CommandLine


def test_a_job_is_enqueued_run_and_shown(shop_anywhere: CommandLine) -> None:
    shop = shop_anywhere
    job_id = shop.enqueue("shop.mail", '"ada"', "copies=2")

    shop.work()
    shown = shop.json("jobs", "show", job_id)

    assert shown["state"] == "completed"
    assert shown["arguments"] == {"to": "ada", "copies": 2}
    assert shown["result"] == "2 to ada"
    assert [moment["what"] for moment in shown["timeline"]] == ["enqueued", "attempt 1 started", "ended completed"]


def test_options_of_enqueue_reach_the_job(shop: CommandLine) -> None:
    later = shop.enqueue("mail", '"ada"', "--delay", "2h", "--priority", "7", "--queue", "post", "--unique-key", "ada")
    fixed = shop.enqueue("mail", '"bob"', "--at", "2099-01-31T18:00:00+01:00")

    shown = shop.json("jobs", "show", later)
    assert (shown["state"], shown["priority"], shown["queue"]) == ("scheduled", 7, "post")
    assert shown["unique_key"] == "ada"
    assert shop.json("jobs", "show", fixed)["available_at"] == "2099-01-31T17:00:00Z"


def test_a_second_job_with_a_unique_key_is_not_added(shop: CommandLine) -> None:
    first = shop.enqueue("mail", '"ada"', "--unique-key", "once")

    said = shop.says("enqueue", "mail", '"ada"', "--unique-key", "once")

    assert said == f"Nothing was enqueued: job {first} already holds unique key 'once'.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("mail", "ada"), 2, """write it as '"ada"'"""),
        (("mail", "1"), 1, "argument `to` must be str"),
        (("nothing",), 2, "Its tasks are: shop.fail, shop.mail, shop.refuse, shop.wait."),
        (("mail", 'to="ada"', "2"), 2, "argument 2 (2) has no name"),
        (("mail", '"ada"', "--at", "2030-01-01T00:00"), 2, "has no time zone"),
        (("mail", '"ada"', "--at", "soon"), 2, "is not a time."),
        (("mail", '"ada"', "--delay", "soon"), 2, "is not a duration"),
    ],
)
def test_an_enqueue_that_fails_is_explained(
    shop: CommandLine, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    assert expected in shop.fails(code, "enqueue", *arguments)


def test_lists_are_filtered_and_continue_where_the_previous_page_ended(shop: CommandLine) -> None:
    mails = [shop.enqueue("mail", f'"{number}"') for number in range(5)]
    shop.enqueue("wait", '"file"')

    first = shop.json("jobs", "list", "--task", "shop.mail", "--limit", "3")
    second = shop.json("jobs", "list", "--task", "shop.mail", "--limit", "3", "--before", first["next_before"])

    assert [job["id"] for job in first["jobs"] + second["jobs"]] == mails[::-1]
    assert second["next_before"] is None
    assert [job["queue"] for job in shop.json("jobs", "list", "--queue", "slow")["jobs"]] == ["slow"]
    assert shop.json("jobs", "list", "--state", "completed", "--state", "failed")["jobs"] == []


def test_a_failed_job_is_shown_with_the_traceback_of_every_attempt(shop: CommandLine) -> None:
    job_id = shop.enqueue("fail", "5")
    shop.work()

    shown = shop.says("jobs", "show", job_id)

    assert shown.count("raise ValueError") == 2
    assert "attempt 1 failed" in shown
    assert "ended dead_letter" in shown


def test_waiting_for_a_job_ends_with_its_state_or_the_cause(shop: CommandLine) -> None:
    good, bad = shop.enqueue("mail", '"ada"'), shop.enqueue("refuse", "5")

    assert "did not end within 0 s. No worker is running." in shop.fails(1, "jobs", "wait", good, "--timeout", "0s")
    shop.work()

    assert shop.says("jobs", "wait", good) == f"Job {good} ended as completed.\n"
    assert shop.run("jobs", "wait", bad).exit_code == 1


def test_ended_jobs_are_retried_and_others_are_not(shop: CommandLine) -> None:
    ended, live, unknown = shop.enqueue("mail", '"ada"'), "", str(uuid4())
    shop.work()
    live = shop.enqueue("mail", '"bob"')

    result = shop.run("jobs", "retry", ended, live, unknown)

    assert result.exit_code == 1
    assert f"Job {ended} is queued again." in result.stdout
    assert f"job {live} is queued: only ended jobs" in result.stderr
    assert f"job {unknown}: there is no such job" in result.stderr
    assert any("restart by" in moment["what"] for moment in shop.json("jobs", "show", ended)["timeline"])


def test_a_waiting_job_is_cancelled_and_a_running_one_is_asked_to_stop(shop: CommandLine) -> None:
    running, waiting = shop.enqueue("mail", '"ada"'), shop.enqueue("mail", '"bob"')
    lease = claim("default", owner="w", task_names=["shop.mail"], slots=1, lease=timedelta(minutes=1))
    shop.store.run(lease)

    said = shop.says("jobs", "cancel", running, waiting)

    assert f"Job {running} is running; its worker has been asked to stop it." in said
    assert f"Job {waiting} is cancelled." in said
    assert shop.json("jobs", "show", waiting)["state"] == "cancelled"


def test_a_running_job_is_shown_with_its_progress(shop: CommandLine) -> None:
    job_id, silent = shop.enqueue("mail", '"ada"'), shop.enqueue("mail", '"bob"')
    lease = timedelta(minutes=1)
    shop.store.run(claim("default", owner="w", task_names=["shop.mail"], slots=2, lease=lease))
    shop.store.run(renew([(job_id, 1)], owner="w", lease=lease, reports={(job_id, 1): '{"done":3,"of":10}'}))

    assert shop.json("jobs", "show", job_id)["progress"] == {"done": 3, "of": 10}
    assert shop.json("jobs", "show", silent)["progress"] is None
    assert re.search(r'^progress: +\{"done":3,"of":10\}$', shop.says("jobs", "show", job_id), re.MULTILINE)
    assert "progress:" not in shop.says("jobs", "show", silent)
    listed = shop.json("jobs", "list")["jobs"]
    assert {job["id"]: job["progress"] for job in listed} == {job_id: {"done": 3, "of": 10}, silent: None}


def test_an_ended_job_cannot_be_cancelled(shop: CommandLine) -> None:
    job_id = shop.enqueue("mail", '"ada"')
    shop.work()

    assert f"job {job_id} is completed" in shop.fails(1, "jobs", "cancel", job_id)


def test_an_invalid_id_is_explained(shop: CommandLine) -> None:
    assert "'abc' is not a job id" in shop.fails(2, "jobs", "show", "abc")


def test_jobs_are_cancelled_retried_and_discarded_by_filter(shop_anywhere: CommandLine) -> None:
    shop = shop_anywhere
    kept = shop.enqueue("mail", '"bob"')
    for name in ("ada", "eve"):
        shop.enqueue("mail", f'"{name}"', "--queue", "post")

    assert shop.json("jobs", "cancel", "--queue", "post", "--yes") == {"done": 2, "skipped": 0, "refused": []}
    assert shop.json("jobs", "show", kept)["state"] == "queued"
    assert shop.says("jobs", "retry", "--state", "cancelled", "--yes") == "2 jobs are queued again.\n"
    shop.says("jobs", "cancel", "--task", "shop.mail", "--state", "queued", "--yes")
    assert shop.json("jobs", "discard", "--older-than", "1d", "--yes")["done"] == 0
    assert shop.says("jobs", "discard", "--state", "cancelled", "--yes") == "3 jobs are deleted.\n"
    assert shop.json("jobs", "list")["jobs"] == []


def test_a_filter_must_be_confirmed_and_not_be_mixed_with_ids(shop: CommandLine) -> None:
    job = shop.enqueue("mail", '"ada"')

    for command in ("cancel", "retry", "discard"):
        assert "Select jobs by their ids, or with" in shop.fails(2, "jobs", command)
        assert "confirm with --yes" in shop.fails(2, "jobs", command, "--queue", "default")
        assert "by their ids or with filters" in shop.fails(2, "jobs", command, job, "--queue", "default")
    assert "confirm with --yes" in shop.fails(2, "jobs", "discard", job)
    assert shop.json("jobs", "show", job)["state"] == "queued"


def test_discarding_a_live_job_is_refused(shop: CommandLine) -> None:
    job = shop.enqueue("mail", '"ada"')

    assert "no longer exists, or is not in a state that allows it" in shop.fails(1, "jobs", "discard", job, "--yes")
    shop.work()
    assert shop.says("jobs", "discard", job, "--yes") == "One job is deleted.\n"
