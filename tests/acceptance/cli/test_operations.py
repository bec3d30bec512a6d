"""`stagepost queues`, `schedules`, `workers`, `health`, `migrate`, `top` and `bench`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from stagepost.database.dialect import SQLITE
from stagepost.database.migrate import migrations_of
from stagepost.store.leaders import lead
from stagepost.store.leases import claim
from stagepost.store.schedules import orphan_schedules
from stagepost.store.workers import register_worker
from stagepost.worker.loop_table import LOOPS
from tests.acceptance.cli.command_line import CommandLine


def greet(shop: CommandLine) -> None:
    """Register a worker."""
    shop.store.run(register_worker("w1", host="here", pid=42, queues=["default"], tasks=["shop.mail"], slots=3))


def test_a_queue_is_paused_and_resumed(shop: CommandLine) -> None:
    job_id = shop.enqueue("mail", '"ada"')

    assert shop.says("queues", "pause", "default") == "Queue default is paused.\n"
    shop.work()
    assert shop.json("jobs", "show", job_id)["state"] == "queued"
    assert "paused" in shop.says("queues", "list")
    assert shop.says("queues", "resume", "default") == "Queue default is running.\n"
    shop.work()
    assert shop.json("jobs", "show", job_id)["state"] == "completed"


def test_limits_that_are_not_named_keep_their_values(shop: CommandLine) -> None:
    shop.says("queues", "limit", "default", "--max-running", "2", "--rate", "5")

    shop.says("queues", "limit", "default", "--max-running", "off")
    [queue] = shop.json("queues", "list")["queues"]

    assert (queue["max_running"], queue["per_second"], queue["burst"]) == (None, 5.0, 5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "Give at least one limit"),
        (("--rate", "many"), "is neither a number nor `off`"),
        (("--max-running", "0"), "Give 1 or more, or pause the queue"),
    ],
)
def test_limits_that_cannot_work_are_explained(shop: CommandLine, options: tuple[str, ...], expected: str) -> None:
    assert expected in shop.fails(2, "queues", "limit", "default", *options)


def test_a_recount_finds_what_somebody_changed_by_hand_and_corrects_it(shop: CommandLine) -> None:
    shop.enqueue("mail", '"ada"')
    assert shop.says("queues", "recount") == "All counts are right.\n"
    with shop.store.transaction() as connection:
        connection.execute("delete from stagepost_job", {})

    recount = shop.json("queues", "recount")

    assert recount["corrected"] == [{"scope": "queue:default", "class_name": "active", "counted": 1, "found": 0}]
    assert shop.json("queues", "list")["queues"] == []
    assert shop.json("queues", "recount")["corrected"] == []


def test_queues_are_listed_with_counts_and_settings(shop: CommandLine) -> None:
    shop.enqueue("mail", '"ada"')
    shop.enqueue("mail", '"bob"', "--delay", "1h")

    [queue] = shop.json("queues", "list")["queues"]

    assert (queue["name"], queue["jobs"]["queued"], queue["jobs"]["scheduled"]) == ("default", 1, 1)
    assert queue["lag_seconds"] >= 0


def test_a_schedule_is_listed_run_paused_and_resumed(shop: CommandLine) -> None:
    shop.work()

    [schedule] = shop.json("schedules", "list")["schedules"]
    run = shop.json("schedules", "run", "nightly")

    assert (schedule["name"], schedule["rule"], schedule["paused_at"]) == ("nightly", "0 3 * * *", None)
    assert shop.json("jobs", "show", run["id"])["arguments"] == {"to": "the boss"}
    assert shop.json("schedules", "pause", "nightly")["paused_at"] is not None
    assert shop.says("schedules", "resume", "nightly") == "Schedule nightly is running.\n"
    assert "Schedule 'weekly' does not exist" in shop.fails(1, "schedules", "run", "weekly")
    assert shop.says("schedules", "remove", "nightly") == "Schedule nightly is removed.\n"
    assert shop.json("schedules", "list")["schedules"] == []


def test_a_schedule_that_no_worker_declares_is_listed_as_orphaned_and_can_be_resumed(shop: CommandLine) -> None:
    shop.work()
    with closing(sqlite3.connect(shop.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("update stagepost_schedule set declared_at = 1")
    assert shop.store.run(orphan_schedules(["nightly"])) == ["nightly"]

    assert "orphaned: no running worker declares it" in shop.says("schedules", "list")
    assert shop.json("schedules", "list")["schedules"][0]["orphaned_at"] is not None
    assert shop.json("schedules", "resume", "nightly")["orphaned_at"] is None


def test_loops_of_workers_are_listed_with_who_leads(shop: CommandLine) -> None:
    loops = ["leader", "pruner", "claimer"]
    for worker_id in ("w1", "w2"):
        shop.store.run(
            register_worker(
                worker_id, host="here", pid=42, queues=["default"], tasks=["shop.mail"], slots=3, loops=loops
            )
        )
    shop.store.run(lead("upkeep", owner="w2", term=timedelta(seconds=60)))

    listed = {worker["id"]: worker["loops"] for worker in shop.json("workers", "list", "--loops")["workers"]}
    states = {worker_id: {loop["name"]: loop["state"] for loop in loops} for worker_id, loops in listed.items()}

    assert states == {
        "w1": {"leader": "active", "pruner": "standby", "claimer": "active"},
        "w2": {"leader": "active", "pruner": "active", "claimer": "active"},
    }
    assert listed["w1"][1] == {
        "name": "pruner",
        "class": "Pruner",
        "purpose": next(loop.purpose for loop in LOOPS if loop.name == "pruner"),
        "runs_on": "the leader",
        "interval": "60 s",
        "state": "standby",
    }
    assert "standby" in shop.says("workers", "list", "--loops")


def test_workers_are_listed(shop: CommandLine) -> None:
    greet(shop)

    [worker] = shop.json("workers", "list")["workers"]

    assert (worker["host"], worker["pid"], worker["slots"]) == ("here", 42, 3)
    assert "alive" in shop.says("workers", "list")


def test_health_is_bad_without_a_worker_and_good_with_one(shop_anywhere: CommandLine) -> None:
    shop = shop_anywhere

    alone = shop.run("health", "--json")
    greet(shop)
    served = shop.run("health", "--json")

    assert alone.exit_code == 1
    statuses = {check["name"]: check["status"] for check in json.loads(alone.stdout)["checks"]}
    assert (statuses["database"], statuses["schema"], statuses["workers"]) == ("ok", "ok", "failed")
    assert served.exit_code == 0
    assert json.loads(served.stdout)["healthy"] is True


def test_health_without_a_database_is_exit_code_1(shop: CommandLine) -> None:
    result = shop.run("health", "--database", "mysql://nobody@127.0.0.1:1/x")

    assert result.exit_code == 1
    assert "cannot be reached" in result.stdout


def test_health_of_an_old_schema_is_bad_and_says_what_to_do(shop: CommandLine) -> None:
    (shop.folder / "empty.db").touch()

    result = shop.run("health", "--database-only", "--database", "sqlite:///empty.db")

    assert result.exit_code == 1
    assert "Run `stagepost migrate`" in result.stdout


def test_health_is_bad_when_no_worker_knows_a_task_that_waits(shop: CommandLine) -> None:
    shop.store.run(register_worker("w1", host="here", pid=42, queues=["default"], tasks=["other"], slots=3))
    shop.enqueue("mail", '"ada"')
    with shop.store.transaction() as connection:
        connection.execute("update stagepost_job set available_at = available_at - 3600000000", {})

    result = shop.run("health")

    assert result.exit_code == 1
    assert "1 job of task 'shop.mail' waits in queue 'default', the oldest for 3,600 s." in result.stdout
    assert "No running worker of queue 'default' knows task 'shop.mail'." in result.stdout


def test_health_warns_at_once_of_a_queue_that_nobody_serves(shop: CommandLine) -> None:
    shop.store.run(register_worker("w1", host="here", pid=42, queues=["slow"], tasks=["shop.mail"], slots=3))
    shop.enqueue("mail", '"ada"')

    [check] = [one for one in shop.json("health")["checks"] if one["name"] == "tasks"]

    assert check["status"] == "warning"  # a failure only after a minute, so that a restart is none
    assert "No running worker serves queue 'default'; they serve slow." in check["message"]


@pytest.mark.parametrize("command", [("pause",), ("resume",), ("limit", "--max-running", "1")], ids=" ".join)
def test_a_misspelt_queue_is_not_known(shop: CommandLine, command: tuple[str, ...]) -> None:
    refusal = shop.fails(2, "queues", *command, "slwo")

    assert "Queue 'slwo' is not known: it has no jobs, settings or workers. Did you mean slow?" in refusal
    assert shop.json("queues", "list") == {"queues": []}


def test_a_queue_that_is_not_in_use_yet_can_be_paused(shop: CommandLine) -> None:
    assert shop.says("queues", "pause", "--new", "later") == "Queue later is paused.\n"
    assert shop.says("queues", "resume", "later") == "Queue later is running.\n"


def test_migrate_applies_once_and_shows_the_status(shop: CommandLine) -> None:
    new = ("--database", "sqlite:///new.db")
    (shop.folder / "new.db").touch()

    assert shop.run("migrate", "--status", *new).exit_code == 4
    names = [f"{one.version:04}_{one.name}" for one in migrations_of(SQLITE)]
    assert shop.says("migrate", *new) == "".join(f"Applied {name}.\n" for name in names)
    assert shop.says("migrate", *new) == "The tables are up to date.\n"
    assert shop.json("migrate", "--status", *new) == {"applied": names, "missing": []}


def test_the_printed_sql_makes_a_database_that_is_up_to_date(shop: CommandLine) -> None:
    script = shop.says("migrate", "--sql", "--database", "sqlite:///by_hand.db")
    connection = sqlite3.connect(shop.folder / "by_hand.db")
    connection.executescript(script)
    connection.close()

    assert shop.json("migrate", "--status", "--database", "sqlite:///by_hand.db")["missing"] == []
    assert "create table stagepost_job " not in shop.says("migrate", "--sql", "--since", "1")


@pytest.mark.parametrize("url", ["postgresql://h/x", "mysql://h/x"])
def test_sql_is_printed_without_a_server(shop: CommandLine, url: str) -> None:
    assert "create table stagepost_job" in shop.says("migrate", "--sql", "--database", url)


def test_top_shows_queues_workers_and_rates_once(shop_anywhere: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = shop_anywhere
    monkeypatch.setattr("stagepost.cli.top.WINDOW", timedelta(seconds=100))  # it may be a while from work to look
    for number in range(10):
        shop.enqueue("mail", f'"{number}"')
    shop.enqueue("mail", '"bob"', "--delay", "1h")
    greet(shop)
    shop.work()

    shown = json.loads(shop.says("top", "--once", "--json"))

    assert shown["live"] == 1
    assert shown["ended_per_second"]["completed"] == 0.1
    assert [queue["name"] for queue in shown["queues"]] == ["default"]
    assert [worker["pid"] for worker in shown["workers"]] == [42]
    assert "1 live jobs" in shop.says("top", "--once")


def test_bench_measures_and_leaves_nothing_behind(shop_anywhere: CommandLine) -> None:
    shop = shop_anywhere
    kept = shop.enqueue("mail", '"ada"')

    measured = shop.json("bench", "--jobs", "300")

    assert measured["jobs"] == 300
    assert measured["drained_per_second"] > 0
    assert [job["id"] for job in shop.json("jobs", "list")["jobs"]] == [kept]
    assert shop.json("events", "list")["events"] == []


def test_bench_leaves_nothing_behind_when_it_fails(shop: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        [queue] = shop.json("queues", "list")["queues"]
        names = ["stagepost.bench.nothing"]
        shop.store.run(claim(queue["name"], owner="w", task_names=names, slots=3, lease=timedelta(minutes=1)))
        raise KeyboardInterrupt

    monkeypatch.setattr("stagepost.cli.bench.Benchmark._drain", broken)

    assert shop.run("bench", "--jobs", "50").exit_code == 1
    assert shop.json("jobs", "list")["jobs"] == []


def test_one_queue_and_one_schedule_are_shown(shop: CommandLine) -> None:
    shop.enqueue("mail", '"ada"')
    shop.says("queues", "limit", "default", "--max-running", "3")
    shop.work()
    shop.says("schedules", "run", "nightly")

    queue, schedule = shop.json("queues", "show", "default"), shop.json("schedules", "show", "nightly")

    assert (queue["name"], queue["jobs"]["queued"], queue["max_running"]) == ("default", 1, 3)
    assert (schedule["task"], schedule["rule"], schedule["runs"]) == ("shop.mail", "0 3 * * *", [])
    assert "It has not fired yet." in shop.says("schedules", "show", "nightly")
    assert "default" in shop.says("queues", "show", "default")
    assert "does not exist" in shop.fails(1, "schedules", "show", "nobody")
