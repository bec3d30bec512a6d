"""Hostile ids and values: every call answers with our own error or a result, and the same on every database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepost import App, AppTask, BatchHandle, Client, Pipeline
from stagepost.database.migrate import migrate
from stagepost.errors import StagepostError
from stagepost.model.identity import new_id
from tests.depth import sized

LONG = "x" * 10_000
HOSTILE: list[Any] = [
    "", "abc", LONG, "a\0b", "\0", "\ud800", "a\udcff", "\N{PILE OF POO}", "' or 1=1 --", "%s %(id)s :id $1", " ",
    None, 0, -1, 7, 2**70, 1.5, float("nan"), float("inf"), True, b"bytes", b"\xff\0", [], ["a\0b"], {}, {"a": 1},
    object(), dt.timedelta(days=-1), dt.datetime(1, 1, 1, tzinfo=dt.UTC), str(uuid4()), uuid4(), new_id(),
    new_id().upper(),
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=40),
    st.text(st.characters(categories=["Cs", "Cc", "Co"]), max_size=10),
    st.binary(max_size=20),
    st.integers(),
    st.floats(),
    st.uuids(),
    st.uuids().map(str),
)


@dataclass(frozen=True)
class Shop:
    """An app with a task and a pipeline."""

    app: App
    greet: AppTask[[], str]
    pipeline: Pipeline

    @property
    def client(self) -> Client:
        return self.app.client

    def waiting(self) -> str:
        """The id of a job that waits, the same one every time."""
        return self.greet.using(unique_key="waits").enqueue().id

    def cancelled(self) -> str:
        """The id of a job that is cancelled."""
        self.client.cancel(job_id := self.waiting())
        return job_id

    def batch(self) -> BatchHandle:
        """A batch with an item."""
        batch = self.app.batch("made")
        batch.add([self.greet.item("a")])
        return batch


CALLS: dict[str, Callable[[Shop, Any], Any]] = {
    "job": lambda shop, value: shop.client.job(value),
    "jobs before": lambda shop, value: shop.client.jobs(before=value),
    "jobs parent": lambda shop, value: shop.client.jobs(parent_id=value),
    "jobs task": lambda shop, value: shop.client.jobs(task=value),
    "jobs queue": lambda shop, value: shop.client.jobs(queue=value),
    "jobs states": lambda shop, value: shop.client.jobs(states=value),
    "jobs one state": lambda shop, value: shop.client.jobs(states=[value]),
    "jobs limit": lambda shop, value: shop.client.jobs(limit=value),
    "cancel": lambda shop, value: shop.client.cancel(value),
    "cancel actor": lambda shop, value: shop.client.cancel(shop.waiting(), actor=value),
    "retry": lambda shop, value: shop.client.retry(value),
    "retry two": lambda shop, value: shop.client.retry(shop.waiting(), value),
    "retry actor": lambda shop, value: shop.client.retry(shop.cancelled(), actor=value),
    "failures": lambda shop, value: shop.client.failures(value),
    "children": lambda shop, value: shop.client.children_of(value),
    "progress": lambda shop, value: shop.client.progress_of(value),
    "wait": lambda shop, value: shop.client.wait(value, timeout=0),
    "wait timeout": lambda shop, value: shop.client.wait(shop.cancelled(), timeout=value),
    "result": lambda shop, value: shop.client.result(value, timeout=0),
    "handle": lambda shop, value: shop.app.job(value).state(),
    "handle retry": lambda shop, value: shop.app.job(value).retry(),
    "handle cancel": lambda shop, value: shop.app.job(value).cancel(),
    "batch": lambda shop, value: shop.app.batch(value).state(),
    "batch gate": lambda shop, value: shop.app.batch("b", gate=value).seal(),
    "batch retry": lambda shop, value: shop.batch().retry([value]),
    "batch retry keys": lambda shop, value: shop.batch().retry(value),
    "batch waive": lambda shop, value: shop.batch().waive([value], why="because"),
    "batch waive why": lambda shop, value: shop.batch().waive(["a"], why=value),
    "batch items": lambda shop, value: list(shop.batch().items([value])),
    "batch failed": lambda shop, value: shop.batch().failed(limit=value),
    "batch cancel": lambda shop, value: shop.app.batch(value).cancel(),
    "gate": lambda shop, value: shop.app.gate(value).is_open(),
    "gate check": lambda shop, value: shop.app.gate(value).check(),
    "run found": lambda shop, value: shop.pipeline.find(value),
    "run key": lambda shop, value: shop.pipeline.start(value).state(),
    "runs before": lambda shop, value: shop.pipeline.runs(before=value),
    "runs state": lambda shop, value: shop.pipeline.runs(state=value),
    "runs limit": lambda shop, value: shop.pipeline.runs(limit=value),
    "run result": lambda shop, value: shop.pipeline.start("k").result(value),
}
"""Every public call that reads or operates, each with one hostile value."""


def shop_at(url: str) -> Shop:
    app = App(url)

    @app.task(name="greet")
    def greet() -> str:
        return "hello"

    pipeline = app.pipeline("hostile")
    pipeline.step(greet)
    return Shop(app, greet, pipeline)


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Shop]]:
    """A shop on each database, which the examples share: their values must do no harm."""
    servers = {name: request.getfixturevalue(f"{name}_server") for name in ("postgres", "mariadb")}
    urls = {name: server.fresh_database() for name, server in servers.items()}
    urls["sqlite"] = f"sqlite:///{tmp_path_factory.mktemp('hostile')}/stagepost.db"
    made = {name: shop_at(url) for name, url in urls.items()}
    for shop in made.values():
        migrate(shop.app.store)
    yield made
    for shop in made.values():
        shop.app.close()
    for name, server in servers.items():
        server.drop_database(urls[name])


def outcome(call: Callable[[], Any]) -> str:
    """The class of the error, or that there was none; an error that is not ours fails the test."""
    try:
        call()
    except StagepostError as error:
        return type(error).__name__ if len(str(error)) < 3_000 else "an error that repeats a long value"
    return "no error"


@pytest.mark.parametrize("name", CALLS)
def test_every_hostile_value_has_the_same_effect_on_every_database(shops: dict[str, Shop], name: str) -> None:
    for value in HOSTILE:
        found = {kind: outcome(partial(CALLS[name], shop, value)) for kind, shop in shops.items()}
        assert len(set(found.values())) == 1, (value, found)
        assert found["sqlite"] not in {"StoreError", "an error that repeats a long value"}, (value, found)


@pytest.mark.parametrize("name", CALLS)
@given(value=VALUES)
@settings(max_examples=sized(test=8, proof=100, night=1000))
def test_any_value_has_the_same_effect_on_every_database(shops: dict[str, Shop], name: str, value: Any) -> None:
    found = {kind: outcome(partial(CALLS[name], shop, value)) for kind, shop in shops.items()}
    assert len(set(found.values())) == 1, found
