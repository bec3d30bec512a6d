"""Apps whose remote tasks an external program runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

from stagepost import App
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.model.identity import new_id
from tests.acceptance.conftest import quick_settings
from tests.acceptance.remote import Recognise, Stranger, add_recognise
from tests.conformance.bench import DatabaseOnBench
from tests.services.rabbitmq import RabbitmqServer


@pytest.fixture(scope="module")
def broker(rabbitmq_server: RabbitmqServer) -> Iterator[str]:
    with rabbitmq_server.database() as url:
        yield url


@pytest.fixture
def quick() -> RabbitmqSettings:
    """Names at the broker of a test's own, which takes less time than a virtual host."""
    return RabbitmqSettings(lost_after_seconds=0.5, confirm_timeout_seconds=120.0, prefix=f"t{new_id()}")


@pytest.fixture(autouse=True)
def _steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker lead on, and its looks at the broker follow one another, however long its machine stalls."""
    monkeypatch.setattr("stagepost.worker.parts.TERM", timedelta(seconds=40))
    monkeypatch.setattr("stagepost.upkeep.reconciler.SLOW_SECONDS", 600.0)


@pytest.fixture
def app(database: DatabaseOnBench, broker: str, quick: RabbitmqSettings) -> Iterator[App]:
    database.empty()
    with database.store.transaction() as connection:
        connection.execute("delete from effect", {})
    settings = quick_settings(database.url)
    app = App(settings=msgspec.structs.replace(settings, transport=broker, rabbitmq=quick))
    yield app
    app.close()


@pytest.fixture
def recognise(app: App) -> Recognise:
    return add_recognise(app)


@pytest.fixture
def stranger(broker: str, quick: RabbitmqSettings) -> Iterator[Stranger]:
    stranger = Stranger(broker, quick)
    yield stranger
    stranger.close()
