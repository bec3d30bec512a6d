"""Jobs that other programs enqueue with SQL alone: they are checked, counted and run like all others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from stagepost import App, Job, JobState
from stagepost.store.counting import PARTS, count_by_queue, find_drift
from stagepost.store.queues import pause, resume
from stagepost.store.sending import unsent
from tests.acceptance.helpers import AT_ONCE, notes, work
from tests.acceptance.sql_clients import SqlClient, SqlFailed, sql_client
from tests.conformance.bench import DatabaseOnBench

HOSTILE = [
    "O'Reilly; drop table stagepost_job; --",
    'back\\slash "quotes" \\" %s %(x)s $1 :name ? {} \\u0041',
    "Ünïcödé 漢字 🎉 \u202e right to left",
    "line\nbreak\ttab\r",
    "",
]
ID = "019a8a56-0f3e-7c44-a7d1-2b9c1d0e5a03"
NAME_RULE = "use 1 to 191 letters, digits"
REFUSED = [
    ({"task": None}, NAME_RULE),
    ({"task": ""}, NAME_RULE),
    ({"task": "send mail"}, NAME_RULE),
    ({"task": "-x"}, NAME_RULE),
    ({"task": "x\n"}, NAME_RULE),
    ({"task": "tâche"}, NAME_RULE),
    ({"task": "x" * 192}, NAME_RULE),
    ({"task": "x' or '1'='1"}, NAME_RULE),
    ({"queue": "bad queue"}, NAME_RULE),
    ({"queue": "\N{KELVIN SIGN}"}, NAME_RULE),
    ({"arguments": "[1]"}, "give .*one field per parameter"),
    ({"arguments": '"x"'}, "give .*one field per parameter"),
    ({"arguments": "null"}, "give .*one field per parameter"),
    ({"arguments": "{nonsense"}, "json|JSON"),
    ({"arguments": '{"a": NaN}'}, "json|JSON"),
    ({"priority": 32768}, "priority .*-32768 and 32767"),
    ({"priority": -32769}, "priority .*-32768 and 32767"),
    ({"max_attempts": 0}, "max_attempts .*1 or more"),
    ({"delay": -1}, "delay .*100 years"),
    ({"delay": 3_200_000_000}, "delay .*100 years"),
    ({"delay": 1, "at": 2_000_000_000}, "either delay or at"),
    ({"unique_for": 5}, "unique_for needs a unique_key"),
    ({"unique_key": "a", "unique_for": -1}, "unique_for .*100 years"),
    ({"unique_key": ""}, "unique_key .*1 to 191"),
    ({"unique_key": "k" * 192}, "unique_key .*1 to 191"),
    ({"unique_key": " a"}, "unique_key .*white space"),
    ({"unique_key": "a\t"}, "unique_key .*white space"),
    ({"id": "abc"}, "(?i)uuid"),
    ({"id": ID[:-1] + "g"}, "(?i)uuid"),
    ({"queu": "mail"}, "queu|unknown option"),
    ({"max_running": 0}, "max_running .*1 or more"),
    ({"limit_by": "a"}, "limit_by needs max_running"),
    ({"max_running": 1, "limit_by": "a" * 190}, "limit_by .*190 characters"),
]


@pytest.fixture
def sql(app: App, database: DatabaseOnBench) -> Iterator[SqlClient]:
    """The database's own program. After every test, the counts must equal the rows."""
    yield sql_client(database.url)
    assert [app.store.run(find_drift(part)) for part in PARTS] == [[] for _ in PARTS]


def live(app: App) -> int:
    """How many jobs the counts say there are."""
    return sum(sum(states.values()) for states in app.store.run(count_by_queue()).values())


def test_a_job_from_sql_runs_and_has_a_result(app: App, sql: SqlClient) -> None:
    greet = app.task(name="greet")(lambda name, times=1: f"hello {name}" * times)

    job_id = sql.enqueue("greet", {"name": "Ada", "times": 2})
    queued = app.client.job(job_id)
    work(app)

    assert (queued.state, queued.arguments) == ("queued", {"name": "Ada", "times": 2})
    assert app.client.result(job_id) == greet("Ada", 2)
    assert live(app) == 1


def test_a_job_from_sql_has_the_same_defaults_as_one_from_python(app: App, sql: SqlClient) -> None:
    greet = app.task(name="greet")(lambda: None)

    from_sql, from_python = app.client.job(sql.enqueue("greet")), app.client.job(greet.enqueue().id)

    assert facts(from_sql) == facts(from_python)
    assert UUID(from_sql.id).version == 7
    assert UUID(from_sql.id).variant == UUID(from_python.id).variant
    assert from_sql.id[:8] <= from_python.id[:8], "ids begin with the time"
    assert from_sql.created_at == from_sql.available_at <= from_python.created_at


def test_a_job_from_sql_takes_the_same_options_as_one_from_python(app: App, sql: SqlClient) -> None:
    note = app.task(name="note")(lambda text: text)
    options = {"queue": "mail", "priority": -7, "delay": 90.5, "max_attempts": 2}

    from_sql = app.client.job(sql.enqueue("note", {"text": "x"}, **options, unique_key="from sql"))
    from_python = app.client.job(note.using(**options, unique_key="from python").enqueue("x").id)

    assert facts(from_sql) == facts(from_python)
    assert from_sql.state == "scheduled"
    assert from_sql.available_at - from_sql.created_at == timedelta(seconds=90.5)
    assert app.store.run(count_by_queue())["mail"][JobState.SCHEDULED] == 2


def facts(job: Job) -> dict[str, object]:
    """What does not differ between two jobs alike."""
    names = ("task", "queue", "state", "priority", "arguments", "attempt", "failures", "crashes", "max_attempts")
    more = ("limit_key", "blocked_on", "batch_id", "worker", "started_at", "lease_until", "trace")
    return {name: getattr(job, name) for name in (*names, *more)}


@pytest.mark.parametrize(("at", "state"), [(4_102_444_800, "scheduled"), (1_000_000_000, "queued")])
def test_a_job_from_sql_can_have_a_time(app: App, sql: SqlClient, at: int, state: str) -> None:
    job = app.client.job(sql.enqueue("greet", at=at))

    assert job.state == state
    assert job.available_at == datetime.fromtimestamp(at, UTC)


def test_null_means_the_default(app: App, sql: SqlClient) -> None:
    nothing = dict.fromkeys(("queue", "priority", "delay", "at", "max_attempts", "unique_key", "unique_for", "id"))

    job = app.client.job(sql.enqueue("greet", None, **nothing))

    assert (job.queue, job.priority, job.max_attempts, job.state) == ("default", 0, 5, "queued")


@pytest.mark.parametrize(("wrong", "why"), REFUSED, ids=lambda value: str(value)[:40])
def test_wrong_values_are_refused_at_the_call(app: App, sql: SqlClient, wrong: dict[str, object], why: str) -> None:
    given = {"task": "greet", "arguments": None, **wrong}

    with pytest.raises(SqlFailed, match=why):
        sql.enqueue(**given)  # type: ignore[arg-type]

    assert app.client.jobs() == []


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_job_is_part_of_the_programs_own_transaction(app: App, sql: SqlClient, end: str) -> None:
    sql.run(
        f"begin;\ninsert into effect (note) values ('order');\n{sql.call('greet', unique_key='k')}"
        f"{sql.call('greet', delay=5)}{end};\n"
    )

    is_stored = end == "commit"
    assert (len(notes(app)), len(app.client.jobs()), live(app)) == ((1, 2, 2) if is_stored else (0, 0, 0))
    assert sql.enqueue("greet", unique_key="k"), "a key is free again after the rollback"


def test_a_refused_call_leaves_the_rest_of_the_transaction_as_it_was(app: App, sql: SqlClient) -> None:
    sql.enqueue("greet", {"a": 1}, id=ID)
    wrong = sql.call("greet", {"a": 2}, id=ID)
    script = f"begin;\ninsert into effect (note) values ('order');\n{wrong}commit;\n"

    assert "other arguments" in sql.run_all(script)
    aborts_all = app.store.dialect.name == "postgres"
    assert (notes(app), len(app.client.jobs())) == ([] if aborts_all else ["order"], 1)


def test_arguments_that_do_not_fit_fail_the_attempt_with_a_clear_message(app: App, sql: SqlClient) -> None:
    def charge(amount: int) -> int:
        return amount

    app.task(name="charge", retry=AT_ONCE)(charge)
    wrong_type = sql.enqueue("charge", {"amount": "many"})
    wrong_name = sql.enqueue("charge", {"amuont": 3})

    work(app)

    errors = {job_id: app.client.job(job_id).error or "" for job_id in (wrong_type, wrong_name)}
    assert {app.client.job(job_id).state for job_id in errors} == {"failed"}
    assert "Expected `int`, got `str`" in errors[wrong_type]
    assert "amount" in errors[wrong_type]
    assert "amuont" in errors[wrong_name]


def test_a_task_that_nobody_knows_waits_like_any_other(app: App, sql: SqlClient) -> None:
    app.task(name="greet")(lambda: None)
    job_id = sql.enqueue("gret")

    work(app)

    assert app.client.job(job_id).state in {"queued", "blocked"}  # a slow claim moves it out of the way


def test_unique_keys_hold_between_sql_and_python(app: App, sql: SqlClient) -> None:
    greet = app.task(name="greet")(lambda: "hello")

    first = sql.enqueue("greet", unique_key="a")
    assert sql.enqueue("greet", unique_key="a") == first
    again = greet.using(unique_key="a").enqueue()
    assert (again.id, again.is_new) == (first, False)
    second = greet.using(unique_key="b").enqueue().id
    assert sql.enqueue("greet", unique_key="b") == second
    assert live(app) == 2

    work(app)

    third = sql.enqueue("greet", unique_key="a")
    assert third not in {first, second}
    assert app.client.cancel(third) == "cancelled"
    assert greet.using(unique_key="a").enqueue().is_new


def test_a_unique_key_can_be_held_for_a_time(app: App, sql: SqlClient) -> None:
    greet = app.task(name="greet")(lambda: "hello")
    hour = timedelta(hours=1)

    first = sql.enqueue("greet", unique_key="a", unique_for=3600)
    work(app)

    assert sql.enqueue("greet", unique_key="a", unique_for=3600) == first
    assert greet.using(unique_key="a", unique_for=hour).enqueue().id == first
    second = greet.using(unique_key="b", unique_for=hour).enqueue().id
    assert sql.enqueue("greet", unique_key="b", unique_for=3600) == second
    assert sql.enqueue("greet", unique_key="c", unique_for=0) != sql.enqueue("greet", unique_key="c", unique_for=0)
    assert live(app) == 4


def test_of_many_programs_with_one_key_one_creates_the_job(app: App, sql: SqlClient) -> None:
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda _: sql.enqueue("greet", unique_key="race"), range(6)))

    assert len(set(found)) == 1
    assert [job.id for job in app.client.jobs()] == found[:1]


def test_of_many_programs_with_one_id_one_creates_the_job(app: App, sql: SqlClient) -> None:
    job_id = str(uuid4())

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda _: sql.enqueue("greet", id=job_id), range(6)))

    assert set(found) == {job_id}
    assert [job.id for job in app.client.jobs()] == [job_id]


def test_a_repeated_id_creates_no_second_job(app: App, sql: SqlClient) -> None:
    greet = app.task(name="greet")(lambda name: name)

    assert sql.enqueue("greet", {"name": "Ada"}, id=ID.upper()).lower() == ID
    assert sql.enqueue("greet", {"name": "Ada"}, id=ID) == ID
    assert not greet.using(id=ID).enqueue("Ada").is_new
    for task, name in (("greet", "Grace"), ("other", "Ada")):
        with pytest.raises(SqlFailed, match="other arguments"):
            sql.enqueue(task, {"name": name}, id=ID)
    work(app)

    assert sql.enqueue("greet", {"name": "Ada"}, id=ID) == ID
    with pytest.raises(SqlFailed, match="other arguments"):
        sql.enqueue("greet", {"name": "Grace"}, id=ID)
    assert [job.state for job in app.client.jobs()] == ["completed"]


def test_a_replaced_unique_job_is_found_by_its_id(app: App, sql: SqlClient) -> None:
    greet = app.task(name="greet")(lambda name: name)
    sql.enqueue("greet", {"name": "Ada"}, id=ID, unique_key="k")
    greet.using(unique_key="k", on_conflict="replace").enqueue("Grace")

    assert sql.enqueue("greet", {"name": "Ada"}, id=ID, unique_key="k") == ID
    assert app.client.job(ID).arguments == {"name": "Grace"}


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_arrives_unchanged(app: App, sql: SqlClient, text: str) -> None:
    app.task(name="echo")(lambda text: text)
    key = text.strip() or "k"

    job_id = sql.enqueue("echo", json.dumps({"text": text}, ensure_ascii=False), unique_key=key)
    holder = app.task(name="other")(lambda: None).using(unique_key=key).enqueue()
    work(app)

    assert app.client.job(job_id).unique_key == key
    assert holder.id == job_id
    assert app.client.result(job_id) == text


def test_a_job_of_a_carried_queue_waits_to_be_sent_like_any_other(app: App, sql: SqlClient) -> None:
    from_python = app.task(name="greet")(lambda: None).enqueue().id
    from_sql = sql.enqueue("greet")

    found = app.store.run(unsent("default", most=10))

    assert {one.id for one in found} == {from_python, from_sql}


def test_a_job_of_a_paused_queue_waits(app: App, sql: SqlClient) -> None:
    app.task(name="greet")(lambda: None)
    app.store.run(pause("default", actor="me"))
    job_id = sql.enqueue("greet")
    work(app)
    waiting = app.client.job(job_id).state
    app.store.run(resume("default", actor="me"))
    work(app)

    assert (waiting, app.client.job(job_id).state) == ("queued", "completed")


def test_a_limit_of_the_task_holds_for_jobs_from_sql(app: App, sql: SqlClient) -> None:
    running: list[int] = []
    most: list[int] = []

    def count() -> None:
        running.append(1)
        most.append(len(running))
        running.pop()

    app.task(name="count", max_running=1)(count)
    sql.run("".join(sql.call("count") for _ in range(5)))
    work(app)

    assert most == [1] * 5


@pytest.mark.parametrize("options", [{}, {"delay": 60}], ids=str)
def test_a_job_of_a_remote_task_with_a_limit_is_stored_as_python_stores_it(
    app: App, sql: SqlClient, options: dict[str, Any]
) -> None:
    keyed = app.task(name="keyed", queue="far", remote=True, max_running=2, limit_by=lambda who: who)(lambda who: who)
    plain = app.task(name="plain", queue="far", remote=True, max_running=3)(lambda: None)

    from_python = keyed.using(**options).enqueue("Ada").id, plain.using(**options).enqueue().id
    from_sql = (
        sql.enqueue("keyed", {"who": "Ada"}, queue="far", max_running=2, limit_by="Ada", **options),
        sql.enqueue("plain", queue="far", max_running=3, **options),
    )

    stored = "select state, limit_key, limit_slots, blocked_on from stagepost_job where id = '{}'"
    for expected, job_id in zip(from_python, from_sql, strict=True):
        assert sql.run(stored.format(job_id) + ";\n") == sql.run(stored.format(expected) + ";\n")
    assert app.client.job(from_sql[0]).state == ("scheduled" if options else "blocked")


def test_a_limit_that_the_task_does_not_have_does_not_hold_its_jobs(app: App, sql: SqlClient) -> None:
    app.task(name="greet")(lambda: None)
    job_id = sql.enqueue("greet", max_running=1)

    work(app)

    assert app.client.job(job_id).state == "completed"


def test_insert_or_replace_replaces_nothing(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/stagepost.db")
    app.migrate()
    sql = sql_client(app.settings.database_url)
    first = sql.enqueue("greet", {"n": 1}, unique_key="k")

    for policy in ("replace", "ignore", "fail"):
        sql.run(f"insert or {policy} into stagepost_enqueue_v1 (task, unique_key) values ('other', 'k');\n")

    [job] = app.client.jobs()
    assert (job.id, job.arguments) == (first, {"n": 1})
    app.close()
