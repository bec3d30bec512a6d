"""An id that is no UUID names no job, on every database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stagepost import App
from stagepost.errors import JobNotFound

HOSTILE = ["", "abc", "x" * 10_000, "a\0b", "' or 1=1 --", "\N{PILE OF POO}"]
LOOKUPS: dict[str, Callable[[App, str], Any]] = {
    "job": lambda app, text: app.client.job(text),
    "cancel": lambda app, text: app.client.cancel(text),
    "failures": lambda app, text: app.client.failures(text),
    "children_of": lambda app, text: app.client.children_of(text),
    "progress_of": lambda app, text: app.client.progress_of(text),
    "wait": lambda app, text: app.client.wait(text, timeout=0),
    "state of a handle": lambda app, text: app.job(text).state(),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_an_id_that_is_no_uuid_is_not_found(app: App, name: str) -> None:
    for text in HOSTILE:
        with pytest.raises(JobNotFound):
            LOOKUPS[name](app, text)
