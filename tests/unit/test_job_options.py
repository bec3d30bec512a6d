"""Options of one job that can be given as text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from stagepost import App, OnConflict
from stagepost.errors import ConfigurationError


@pytest.fixture
def app() -> Iterator[App]:
    with closing(App("sqlite://")) as app:
        yield app


@pytest.mark.parametrize(("written", "left"), [("keep", "first"), ("replace", "second"), (OnConflict.KEEP, "first")])
def test_on_conflict_may_be_written_as_text(app: App, written: Any, left: str) -> None:
    greet = app.task(name="greet")(lambda name: name)
    first = greet.using(unique_key="hello", delay=60).enqueue("first")

    greet.using(unique_key="hello", delay=60, on_conflict=written).enqueue("second")

    assert app.client.job(first.id).arguments == {"name": left}


def test_an_unknown_on_conflict_is_refused(app: App) -> None:
    greet = app.task(name="greet")(lambda name: name)

    with pytest.raises(ConfigurationError, match="'ignore': it must be 'keep' or 'replace' or 'debounce'"):
        greet.using(unique_key="hello", on_conflict="ignore")
