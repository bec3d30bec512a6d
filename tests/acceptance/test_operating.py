"""What operators do from Python: queues, schedules, workers, dead letters, and actions on many jobs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from stagepost import App, Job, JobOptions, JobState, Permanent
from stagepost.client import bulk
from stagepost.client import jobs as client_jobs
from stagepost.errors import (
    ConfigurationError,
    GateNotFound,
    GroupNotFound,
    IllegalTransition,
    JobNotFound,
    RunNotFound,
    ScheduleNotFound,
    StoreError,
)
from stagepost.operations import BulkResult, RegisteredWorker
from stagepost.store.activity import actions_on
from stagepost.store.counting import PARTS, find_drift
from tests.acceptance.helpers import AT_ONCE, work

NOBODY = "019a8a56-0f3e-7c44-a7d1-2b9c1d0e5a03"


def fail(order: int) -> None:
    raise ValueError(f"order {order}: the bridge is down")


def refuse(order: int) -> None:
    raise Permanent(f"order {order} has no address")


@pytest.fixture
def failed(app: App) -> App:
    """An app with three dead letters of one task and two of another."""
    task, other = app.task(name="fail", retry=AT_ONCE)(fail), app.task(name="refuse", queue="mail")(refuse)
    task.enqueue_many([(1,), (2,), (3,)])
    other.enqueue_many([(1,), (2,)])
    work(app)
    return app


def drifts(app: App) -> list[object]:
    return [drift for part in PARTS for drift in app.store.run(find_drift(part))]


def test_queues_are_listed_with_their_counts_and_lag(app: App) -> None:
    app.task(name="a", queue="mail")(lambda: None).enqueue_many([()] * 3)
    app.task(name="b", queue="later")(lambda: None).using(delay=60).enqueue()

    later, mail = app.queues.list()

    assert (later.name, later.jobs[JobState.SCHEDULED], later.lag) == ("later", 1, None)
    assert (mail.name, mail.jobs[JobState.QUEUED]) == ("mail", 3)
    assert mail.lag is not None
    assert mail.lag >= timedelta(0)
    assert app.queues.get("mail").jobs == mail.jobs
    assert set(app.queues.get("nobody").jobs.values()) == {0}


def test_a_queue_is_paused_and_resumed_and_both_are_recorded(app: App) -> None:
    job = app.task(name="a", queue="mail")(lambda: "done").enqueue()

    paused = app.queues.pause("mail", actor="me")
    work(app)
    waiting = job.state()
    resumed = asyncio.run(app.queues.resume_async("mail", actor="you"))
    work(app)

    assert paused.paused_at is not None
    assert datetime.now(UTC) - paused.paused_at < timedelta(hours=1)
    assert (waiting, resumed.paused_at, job.state()) == ("queued", None, "completed")
    actions = [(one.actor, one.action) for one in app.store.run(actions_on("mail"))]
    assert actions == [("me", "pause_queue"), ("you", "resume_queue")]


def test_limits_that_are_not_given_keep_their_values(app: App) -> None:
    app.queues.limit("mail", max_running=4, per_second=2.5, burst=7)

    assert facts(app, "mail") == (4, 2.5, 7)
    app.queues.limit("mail", max_running=None)
    assert facts(app, "mail") == (None, 2.5, 7)
    app.queues.limit("mail", burst=3)
    assert facts(app, "mail") == (None, 2.5, 3)
    app.queues.limit("mail", per_second=10)
    assert facts(app, "mail") == (None, 10, 10)
    app.queues.limit("mail", per_second=None)
    assert facts(app, "mail") == (None, None, None)


def facts(app: App, name: str) -> tuple[object, ...]:
    queue = app.queues.get(name)
    return queue.max_running, queue.per_second, queue.burst


def test_wrong_names_and_limits_of_queues_are_refused(app: App) -> None:
    for act in (app.queues.pause, app.queues.resume, app.queues.get):
        for wrong in ("two words", ""):
            with pytest.raises(ConfigurationError, match="queue name"):
                act(wrong)
    with pytest.raises(ConfigurationError, match="at least one limit"):
        app.queues.limit("mail")
    with pytest.raises(ConfigurationError, match="max_running is 0"):
        app.queues.limit("mail", max_running=0)


def test_counts_that_are_wrong_are_found_and_corrected(app: App) -> None:
    app.task(name="a")(lambda: None).enqueue_many([()] * 3)
    with app.store.transaction() as connection:
        connection.execute("delete from stagepost_move", {})
    seen: list[tuple[int, int]] = []

    [drift] = app.queues.recount(on_progress=lambda done, of: seen.append((done, of)))

    assert (drift.scope, drift.counted, drift.found) == ("queue:default", 0, 3)
    assert seen[-1] == (len(PARTS), len(PARTS))
    assert app.jobs.counts()[JobState.QUEUED] == 3


def test_schedules_are_listed_run_paused_resumed_and_removed(app: App) -> None:
    task = app.task(name="report")(lambda: "done")
    app.schedule("nightly", "0 3 * * *", task.job(), time_zone="Europe/Berlin")
    work(app)

    [listed] = app.schedules.list()
    job = app.schedules.run("nightly", actor="me")
    work(app)

    assert (listed.name, listed.task, listed.rule, listed.time_zone) == (
        "nightly",
        "report",
        "0 3 * * *",
        "Europe/Berlin",
    )
    assert listed.next_due_at is not None
    assert listed.next_due_at > datetime.now(UTC) - timedelta(hours=1)
    assert job.result() == "done"
    assert app.client.job(job.id).schedule == "nightly"
    assert app.schedules.pause("nightly").paused_at is not None
    assert asyncio.run(app.schedules.resume_async("nightly")).paused_at is None
    assert app.schedules.runs("nightly") == []
    app.schedules.remove("nightly")
    for missing in (app.schedules.get, app.schedules.pause, app.schedules.run, app.schedules.remove):
        with pytest.raises(ScheduleNotFound):
            missing("nightly")


def test_the_due_times_of_a_schedule_are_listed_in_pages(app: App) -> None:
    task = app.task(name="tick")(lambda: None)
    app.schedule("often", "every 60s", task.job(), catch_up="all")
    work(app)
    with app.store.transaction() as connection:
        connection.execute("update stagepost_schedule set next_due_at = next_due_at - 180000000", {})
    work(app)

    found = app.schedules.runs("often", limit=2)
    rest = app.schedules.runs("often", before=found[-1].due_at)

    due = [run.due_at for run in (*found, *rest)]
    assert due == sorted(due, reverse=True)
    assert len(due) >= 3
    assert {app.client.job(run.job_id).task for run in (*found, *rest)} == {"tick"}


def test_a_running_worker_is_listed_with_its_loops(app: App) -> None:
    seen: list[RegisteredWorker] = []

    @app.task(name="look")
    async def look() -> None:
        while not seen:  # a worker may start a job before it has registered
            seen.extend(await app.workers.list_async())

    look.enqueue()
    work(app)

    [worker] = seen
    assert worker.is_alive
    assert worker.tasks == ("look",)
    assert "claimer" in worker.loops
    assert worker.silent < timedelta(minutes=1)
    assert app.workers.list() == []


def test_the_worker_that_leads_the_upkeep_is_listed_so(app: App) -> None:
    leads: set[str] = set()

    @app.task(name="look")
    async def look() -> None:
        while not leads:  # a worker may start a job before it leads
            leads.update(*[worker.leads for worker in await app.workers.list_async()])

    look.enqueue()
    work(app)

    assert leads == {"upkeep"}


def test_dead_letters_are_grouped_paged_and_counted(failed: App) -> None:
    letters = failed.dead_letters
    large, small = letters.groups()

    assert (large.task, large.kind, large.number, small.task, small.number) == ("fail", "jobs", 3, "refuse", 2)
    assert large.first_at <= large.last_at
    assert letters.group(large.id) == large
    assert letters.count() == 5
    everything = letters.page(limit=3)
    everything += letters.page(limit=3, before=everything[-1].id)
    assert len({one.id for one in everything}) == 5
    assert {one.task for one in letters.page(group=small.id) if isinstance(one, Job)} == {"refuse"}
    with pytest.raises(GroupNotFound, match="nothing"):
        letters.page(group="nothing")


def test_dead_letters_are_retried_and_discarded_by_group_task_queue_and_id(failed: App) -> None:
    letters = failed.dead_letters
    large, small = letters.groups()
    [one, *_] = letters.page(group=large.id)

    assert letters.discard(one.id, actor="me").done == 1
    assert asyncio.run(letters.retry_async(group=large.id)).done == 2
    assert letters.discard(queue="mail") == BulkResult(done=2)
    with pytest.raises(GroupNotFound):
        letters.discard(group=small.id)
    work(failed)
    assert letters.retry(task="fail").done == 2
    work(failed)
    assert letters.discard(everything=True).done == 2
    assert letters.discard(everything=True) == BulkResult()
    assert (letters.count(), failed.jobs.page().jobs, drifts(failed)) == (0, [], [])


def test_only_dead_letters_can_be_handled_as_such(failed: App) -> None:
    done = failed.task(name="ok")(lambda: None).enqueue()
    work(failed)

    for act in (failed.dead_letters.get, failed.dead_letters.retry, failed.dead_letters.discard):
        with pytest.raises(IllegalTransition):
            act(done.id)
        with pytest.raises(JobNotFound):
            act(NOBODY)
        with pytest.raises(JobNotFound):
            act("not an id")
    for wrong in ({}, {"group": "a", "everything": True}):
        with pytest.raises(ConfigurationError, match="select dead letters"):
            failed.dead_letters.retry(**wrong)  # type: ignore[arg-type]


def test_jobs_are_paged_with_filters(app: App) -> None:
    mail, other = app.task(name="mail", queue="mail")(lambda n: n), app.task(name="other")(lambda: None)
    mail.enqueue_many([(number,) for number in range(5)])
    other.enqueue()

    first = app.jobs.page(queue="mail", limit=3)
    rest = asyncio.run(app.jobs.page_async(queue="mail", limit=3, before=first.next_before))

    assert {job.arguments["n"] for job in (*first.jobs, *rest.jobs)} == set(range(5))
    assert rest.next_before is None
    assert [job.task for job in app.jobs.page(states=["queued"], task="other").jobs] == ["other"]
    assert app.jobs.page(states=[JobState.COMPLETED]).jobs == []
    with pytest.raises(ConfigurationError, match="Valid are: blocked"):
        app.jobs.page(states=["done"])


def test_matching_jobs_are_cancelled_and_others_are_not(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_jobs, "PAGE", 4)
    mail, other = app.task(name="mail", queue="mail")(lambda: None), app.task(name="other", queue="mail")(lambda: None)
    mail.enqueue_many([()] * 9)
    mail.using(delay=60).enqueue()
    kept = other.enqueue()
    seen: list[int] = []

    done = app.jobs.cancel_all(
        task="mail", queue="mail", actor="me", on_progress=lambda result: seen.append(result.done)
    )

    assert done == BulkResult(done=10)
    assert seen == [4, 8, 10]
    assert kept.state() == "queued"
    assert app.jobs.counts()[JobState.CANCELLED] == 10
    assert app.jobs.cancel_all(task="mail") == BulkResult()
    [job, *_] = app.jobs.page(states=["cancelled"]).jobs
    assert "cancel by me" in {moment.what for moment in app.jobs.timeline(job.id)}
    assert drifts(app) == []


def test_only_old_jobs_are_selected_by_age(app: App) -> None:
    mail = app.task(name="mail")(lambda: None)
    old, young = mail.enqueue(), mail.enqueue()
    with app.store.transaction() as connection:
        connection.execute(f"update stagepost_job set created_at = created_at - 7200000000 where id = '{old.id}'", {})

    assert app.jobs.cancel_all(older_than=timedelta(hours=1)) == BulkResult(done=1)
    assert (old.state(), young.state()) == ("cancelled", "queued")


def test_a_running_job_that_matches_is_asked_to_stop(app: App) -> None:
    async def run() -> None:
        @app.task(name="long")
        async def long() -> None:
            await app.jobs.cancel_all_async(task="long")
            await asyncio.Event().wait()

        long.enqueue()

    asyncio.run(run())
    work(app)

    assert [job.state for job in app.jobs.page().jobs] == ["cancelled"]


def test_matching_jobs_are_retried_except_those_whose_key_is_taken(failed: App) -> None:
    task = failed.registry.get("fail")
    [one] = [job for job in failed.jobs.page(task="fail").jobs if job.arguments["order"] == 1]
    with failed.store.transaction() as connection:
        connection.execute(f"update stagepost_job_history set unique_key = 'k' where id = '{one.id}'", {})
    failed.client.enqueue(task.build(JobOptions(unique_key="k"), (9,), {}))

    done = failed.jobs.retry_all(task="fail")

    assert (done.done, done.skipped) == (2, 1)
    assert "'k'" in done.reasons[one.id]
    assert failed.jobs.retry_all(one.id).skipped == 1
    assert drifts(failed) == []


def test_jobs_that_are_gone_or_live_are_skipped_with_a_reason(app: App) -> None:
    job = app.task(name="a")(lambda: None).enqueue()

    for act in (app.jobs.retry_all, app.jobs.discard_all):
        done = act(job.id, NOBODY)
        assert (done.done, done.skipped, set(done.reasons)) == (0, 2, {job.id, NOBODY})
    assert app.jobs.cancel_all(job.id, NOBODY).done == 1


def test_ended_jobs_are_discarded_by_filter(failed: App) -> None:
    failed.task(name="ok")(lambda: None).enqueue_many([()] * 3)
    work(failed)

    assert failed.jobs.discard_all(states=["completed"], task="ok") == BulkResult(done=3)
    assert failed.jobs.discard_all(states=["failed", "dead_letter"], queue="default").done == 3
    assert (failed.dead_letters.count(), drifts(failed)) == (2, [])


def test_an_action_needs_ids_or_a_filter_and_states_that_make_sense(app: App) -> None:
    for act in (app.jobs.cancel_all, app.jobs.retry_all, app.jobs.discard_all):
        with pytest.raises(ConfigurationError, match="either by their ids or by at least one filter"):
            act()
        with pytest.raises(ConfigurationError, match="either by their ids or by at least one filter"):
            act(NOBODY, queue="mail")
    with pytest.raises(ConfigurationError, match="allowed are"):
        app.jobs.cancel_all(states=["completed"])
    with pytest.raises(ConfigurationError, match="allowed are"):
        app.jobs.discard_all(states=["queued"])


def test_an_interrupted_action_has_done_whole_chunks_and_can_be_repeated(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_jobs, "PAGE", 4)
    monkeypatch.setattr(bulk, "CANCELLED_AT_ONCE", 2)
    app.task(name="mail")(lambda: None).enqueue_many([()] * 10)

    def interrupt(result: BulkResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        app.jobs.cancel_all(task="mail", on_progress=interrupt)
    first = app.jobs.counts()[JobState.CANCELLED]

    assert first == 4
    assert app.jobs.cancel_all(task="mail") == BulkResult(done=6)
    assert drifts(app) == []


def test_batches_gates_and_runs_are_listed(app: App) -> None:
    task = app.task(name="a")(lambda: 1)
    for key in ("one", "two"):
        batch = app.batch(key, gate="door")
        batch.add([task.item("x")])
        batch.seal()
    flow = app.pipeline("flow")
    flow.step(task, name="only")
    run = flow.start()

    newest, oldest = app.batches.page()
    assert (newest.batch.key, oldest.batch.key, oldest.progress.total) == ("two", "one", 1)
    assert [one.batch.key for one in app.batches.page(before=newest.batch.id)] == ["one"]
    [gate] = app.gates.page()
    assert (gate.name, gate.is_open, gate.unfinished) == ("door", False, 2)
    assert set(app.gates.get("door").batches) == {"one", "two"}
    [summary] = app.runs.page(pipeline="flow")
    assert (summary.id, summary.state, summary.steps) == (run.id, "running", {"only": "running"})
    work(app)
    assert app.runs.get(run.id).state() == "completed"
    assert app.gates.get("door").is_open
    assert app.batch("one").recount() == []
    with pytest.raises(GateNotFound):
        app.gates.get("nobody")
    for wrong in (NOBODY, "abc"):
        with pytest.raises(RunNotFound):
            app.runs.get(wrong)


def test_health_is_checked_from_python(app: App) -> None:
    names = {check.name: check.status for check in app.health()}

    assert (names["database"], names["schema"], names["workers"]) == ("ok", "ok", "failed")
    assert "workers" not in {check.name for check in asyncio.run(app.health_async(database_only=True))}
    nowhere = App("postgresql://nobody@127.0.0.1:1/none")
    assert [check.status for check in nowhere.health()][-1] == "failed"
    nowhere.close()


def test_a_call_without_a_broker_says_what_to_configure(app: App) -> None:
    app.task(name="a")(lambda: None)

    assert app.broker.look() is None
    assert "default" in {queue.carries for queue in app.broker.plan().queues}
    with pytest.raises(ConfigurationError, match="no broker is configured"):
        app.broker.check()
    assert app.asyncapi(title="Shop")["info"]["title"] == "Shop"


def test_errors_of_the_database_reach_the_caller(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StoreError("the database is on fire")

    monkeypatch.setattr(app.store, "run", broken)

    with pytest.raises(StoreError, match="on fire"):
        app.queues.list()
