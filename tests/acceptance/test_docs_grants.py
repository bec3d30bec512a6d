"""The database roles in the documentation: their grants are sufficient, and a role cannot do another's work."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

import psycopg
import pytest

from stagepost import App, Settings
from stagepost.database.migrate import migrate
from stagepost.database.store import Store
from stagepost.errors import StoreRefused
from stagepost.store.history import discard, prune
from stagepost.store.queue_observations import note_active, observe_queue
from stagepost.store.queues import pause, resume, set_limits
from stagepost.store.schedules import run_now
from stagepost.store.sending import mark_sent, take_delivered
from stagepost.store.workers import forget_silent
from tests.acceptance.helpers import AT_ONCE, work
from tests.acceptance.pages import blocks

LATER = timedelta(hours=1)


@dataclass
class Roles:
    """Two roles that have what the page grants, and the database they have it in."""

    url: str
    worker: str
    enqueuer: str

    def app(self, role: str) -> App:
        """Make an app whose every connection acts as a role."""
        return App(
            settings=Settings(database_url=f"{self.url}?options={quote(f'-c role={role}')}", poll_longest_seconds=0.05)
        )


@pytest.fixture
def roles(postgres_database: str) -> Iterator[Roles]:
    store = Store.at(postgres_database)
    migrate(store)
    store.close()
    suffix = uuid.uuid4().hex[:8]
    made = Roles(postgres_database, f"shop_worker_{suffix}", f"shop_enqueuer_{suffix}")
    [grants] = [block.text for block in blocks("sql") if "grants on postgres" in block.words]
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        for name in (made.worker, made.enqueuer):
            owner.execute(f"create role {name}")
        owner.execute(grants.replace("shop_worker", made.worker).replace("shop_enqueuer", made.enqueuer))
        yield made
        for name in (made.worker, made.enqueuer):
            owner.execute(f"drop owned by {name}")
            owner.execute(f"drop role {name}")


def test_a_worker_can_do_all_its_work_with_the_documented_grants(roles: Roles) -> None:
    app = roles.app(roles.worker)
    fail = app.task(name="fail", retry=AT_ONCE, max_running=1)(lambda: 1 / 0)
    greet = app.task(name="greet")(lambda: "hello")
    app.schedule("daily", "@daily", greet.job())
    dead, done = fail.enqueue(), greet.using(unique_key="once", unique_for=LATER).enqueue()

    work(app)
    assert app.client.job(dead.id).state == "dead_letter"
    assert app.client.job(done.id).state == "completed"
    app.client.retry(dead.id)
    app.client.cancel(dead.id)
    app.store.run(run_now("daily", actor="me"))
    for operation in (pause("default", actor="me"), resume("default", actor="me")):
        app.store.run(operation)
    app.store.run(set_limits("default", max_running=1, rate=100, actor="me"))
    work(app)
    use_broker(app, greet.enqueue().id)
    app.store.run(discard([dead.id], actor="me"))
    app.store.run(prune(timedelta(0)))
    app.store.run(forget_silent(timedelta(0)))

    assert app.client.jobs() == []
    app.close()


def use_broker(app: App, job_id: str) -> None:
    """Do what a worker writes for a queue that RabbitMQ carries, and let the job end."""
    for operation in (mark_sent([(job_id, 1)]), note_active("default"), observe_queue("default", is_empty=True)):
        app.store.run(operation)
    taken = app.store.run(take_delivered("default", [(job_id, 1)], owner="me", task_names=[], lease=LATER))
    assert taken.put_back == [job_id]
    app.client.cancel(job_id)
    with app.store.transaction() as connection:
        for table in ("stagepost_outbox", "stagepost_dead_message"):
            connection.execute(f"delete from {table}", {})


def test_an_enqueuer_can_enqueue_and_look_and_nothing_else(roles: Roles) -> None:
    app = roles.app(roles.enqueuer)
    greet = app.task(name="greet")(lambda name: name)

    first = greet.using(unique_key="a", delay=60).enqueue("Ada")
    again = greet.using(unique_key="a", delay=60, on_conflict="debounce").enqueue("Grace")
    greet.using(unique_key="b", unique_for=LATER).enqueue("Edsger")

    assert (again.id, again.is_new) == (first.id, False)
    assert len(app.client.jobs()) == 2
    with pytest.raises(StoreRefused, match="permission denied for table"):
        app.client.cancel(first.id)
    app.close()
