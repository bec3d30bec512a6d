"""Options of one job: what can be written as text means what it says."""

from __future__ import annotations

import pytest

from stagepost import App, ConfigurationError, ManualClock, OnConflict


@pytest.mark.parametrize(("written", "left"), [("keep", "first"), ("replace", "second"), (OnConflict.KEEP, "first")])
def test_on_conflict_may_be_written_as_text(written: str, left: str) -> None:
    app = App("sqlite://", clock=ManualClock())
    greet = app.task(name="greet")(lambda name: name)
    first = greet.using(unique_key="hello", delay=60).enqueue("first")

    greet.using(unique_key="hello", delay=60, on_conflict=written).enqueue("second")

    assert app.client.job(first.id).payload == f'{{"name":"{left}"}}'


def test_an_unknown_on_conflict_is_refused() -> None:
    app = App("sqlite://")
    greet = app.task(name="greet")(lambda name: name)

    with pytest.raises(ConfigurationError, match=r"'ignore'\. Known are: keep, replace, debounce"):
        greet.using(unique_key="hello", on_conflict="ignore")
