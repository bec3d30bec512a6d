"""Stagepost in a Django project: its checks on every database, its migrations, and its commands."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.acceptance.django.project import Project, database_facts
from tests.depth import quickly_on

KINDS = ("memory", "sqlite", "postgres", "mariadb")
each_kind = quickly_on("postgres", fixture="kind", among=KINDS)
WITHOUT_TLS = {"ssl_disabled": True}
"""PyMySQL, which stands for mysqlclient here, would read all certificates of the machine for every connection."""


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "sqlite")


@pytest.fixture
def project(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    other = database_facts(f"sqlite:///{tmp_path}/other.db")
    match kind:
        case "memory" | "sqlite":
            test = {"NAME": None if kind == "memory" else f"{tmp_path}/test.db"}
            facts = database_facts(
                f"sqlite:///{tmp_path}/shop.db", TEST=test, OPTIONS={"transaction_mode": "IMMEDIATE"}
            )
        case "postgres":
            facts = database_facts(request.getfixturevalue("postgres_database"))
        case _:
            facts = database_facts(request.getfixturevalue("mariadb_database"), OPTIONS=WITHOUT_TLS)
    return Project({"default": facts, "other": other})


@each_kind
def test_the_checks_of_the_project_pass(project: Project, kind: str) -> None:
    chosen = ["--exclude-tag", "worker", "--exclude-tag", "two_connections"] if kind == "memory" else []

    output = project.run("test", "tests.acceptance.django", "--pattern", "check_*.py", "--noinput", *chosen)

    assert "Ran 0 tests" not in output
    assert "\nOK" in output, output


MIGRATING = """
from io import StringIO
from django.core.management import call_command
from django.db import transaction
from django.db.migrations.exceptions import IrreversibleError
from stagepost.database.migrate import pending
from stagepost.errors import SchemaError

def call(*arguments):
    out = StringIO()
    call_command(*arguments, stdout=out, no_color=True)
    return out.getvalue()

assert "Apply Stagepost's migration 0001" in call("migrate", "--plan")
assert "create table stagepost_job" in call("sqlmigrate", "stagepost", "0001").lower()
try:
    receipt.enqueue(1)
    raise AssertionError("it was enqueued without tables")
except SchemaError as error:
    assert "Run `python manage.py migrate`" in str(error), error
try:
    with transaction.atomic():
        receipt.enqueue(1)
    raise AssertionError("it was enqueued without tables")
except SchemaError as error:
    assert "Run `python manage.py migrate`" in str(error), error

call("migrate", "--run-syncdb")

assert pending(app.store) == []
receipt.enqueue(1)
assert "No changes detected" in call("makemigrations", "--check", "stagepost")
assert "No planned migration operations" in call("migrate", "--plan")
try:
    call("migrate", "stagepost", "zero")
    raise AssertionError("the tables were dropped")
except IrreversibleError as error:
    assert "cannot be reversed, because that would delete jobs" in str(error)
assert "[X] 0001_initial" in call("showmigrations", "stagepost")
assert len(app.client.jobs()) == 1
print("all is well")
"""


@each_kind
def test_migrate_creates_the_tables(project: Project) -> None:
    assert "all is well" in project.shell(MIGRATING)


def test_migrate_leaves_other_databases_alone(project: Project, tmp_path: Path) -> None:
    project.run("migrate", "--database", "other")
    other = f"sqlite:///{tmp_path}/other.db"

    assert "0001_initial" in project.run("stagepost", "migrate", "--status", "--database", other, code=4)
    project.run("migrate", "--database", "other", "stagepost", "zero")


@pytest.mark.prove
def test_the_database_of_the_jobs_can_be_another_alias(project: Project, tmp_path: Path) -> None:
    project.settings["DATABASE"] = "other"
    project.run("migrate")
    project.run("migrate", "--database", "other")

    assert "no such jobs" in project.run("stagepost", "jobs", "list")
    assert "0001_initial" in project.run(
        "stagepost", "migrate", "--status", "--database", f"sqlite:///{tmp_path}/shop.db", code=4
    )


@pytest.mark.prove
def test_migrate_finds_what_stagepost_migrate_has_done(project: Project) -> None:
    project.run("stagepost", "migrate")

    project.run("migrate")

    assert "no such jobs" in project.run("stagepost", "jobs", "list")


def test_every_command_works_without_naming_the_app(project: Project) -> None:
    project.run("migrate", "--run-syncdb")
    project.shell("order = Order.objects.create(product='tea')\nreceipt.enqueue(order.pk)\ncount_orders.enqueue()")
    project.shell("django_tasks.process_id.enqueue()")
    project.run("stagepost", "enqueue", "tests.acceptance.django.shop.tasks.count_orders_async")

    project.run(
        "stagepost", "worker", "--until-idle", "--processes", "2", "--settings=tests.acceptance.django.settings"
    )

    jobs = json.loads(project.run("stagepost", "jobs", "list", "--json"))["jobs"]
    assert {job["task"].rpartition(".")[2]: job["state"] for job in jobs} == dict.fromkeys(
        ["receipt", "count_orders", "count_orders_async", "process_id"], "completed"
    )
    listed = project.shell("from django.core.management import call_command\ncall_command('stagepost', 'jobs', 'list')")
    assert listed.count("completed") == 4


@pytest.mark.prove
def test_dev_restarts_in_the_same_project(project: Project) -> None:
    project.run("migrate", "--run-syncdb")
    project.shell("count_orders_async.enqueue()")

    dev = project.start("stagepost", "dev")
    assert dev.stdout is not None
    try:
        seen = []
        for line in dev.stdout:
            seen.append(line)
            if "runs queues" in line:
                break
        state = project.shell("print(app.job(app.client.jobs()[0].id).wait(timeout=120))")
    finally:
        dev.send_signal(signal.SIGINT)
        dev.communicate(timeout=60)

    assert "completed" in state, seen
