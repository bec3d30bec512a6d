"""`stagepost runs`: what a user sees of runs of pipelines, and does to them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from stagepost import App, Permanent, Pipeline, RunHandle
from stagepost.model.identity import new_id
from tests.acceptance.cli.command_line import CommandLine
from tests.acceptance.conftest import quick_settings
from tests.acceptance.helpers import work


class Films:
    """A pipeline whose third element is bad until somebody mends it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.is_mended = False

        @app.task(name="split")
        def split(film: str) -> list[int]:
            return [1, 2, 3]

        @app.task(name="speak")
        def speak(number: int) -> str:
            if number == 3 and not self.is_mended:
                raise Permanent("no voice")
            return str(number)

        @app.task(name="join")
        def join(parts: list[str]) -> str:
            return "".join(parts)

        self.pipeline: Pipeline = app.pipeline("dub")
        parts = self.pipeline.step(split, inputs={"film": self.pipeline.input("film")})
        spoken = self.pipeline.step(speak, each=parts)
        self.pipeline.step(join, inputs={"parts": spoken})

    def start(self, key: str | None = None) -> RunHandle:
        return self.pipeline.start(key, film="f")


@pytest.fixture
def films(shop_anywhere: CommandLine) -> Iterator[Films]:
    app = App(settings=quick_settings(shop_anywhere.url))
    yield Films(app)
    app.close()


def test_a_run_is_listed_shown_retried_and_watched(shop_anywhere: CommandLine, films: Films) -> None:
    shop, run = shop_anywhere, films.start("film:7")
    work(films.app)

    [listed] = shop.json("runs", "list")["runs"]
    assert (listed["id"], listed["key"], listed["state"]) == (run.id, "film:7", "failed")
    assert listed["steps"] == {"split": "completed", "speak": "failed", "join": "skipped"}
    assert "1 of 3" in shop.says("runs", "list", "--pipeline", "dub", "--state", "failed")
    assert shop.says("runs", "list", "--pipeline", "other") == "There are no such runs.\n"

    shown = shop.says("runs", "show", run.id)
    assert "█" * 13 + "░" * 7 + " 2/3" in shown
    assert "·" * 20 in shown
    assert "no voice" in shown
    document = shop.json("runs", "show", run.id)
    assert [(step["name"], step["after"], step["items"]) for step in document["steps"]] == [
        ("split", [], 1), ("speak", ["split"], 3), ("join", ["speak"], None),
    ]  # fmt: skip
    assert document["steps"][1]["jobs"]["failed"] == 1
    watched = shop.run("runs", "watch", run.id)
    assert (watched.exit_code, "no voice" in watched.stdout) == (1, True)

    assert shop.says("runs", "retry", run.id) == f"Run {run.id} is running again.\n"
    films.is_mended = True
    work(films.app)

    assert "completed" in shop.says("runs", "watch", run.id)
    [line] = shop.run("runs", "watch", run.id, "--json").stdout.splitlines()
    assert json.loads(line)["state"] == "completed"
    assert "nothing to retry" in shop.says("runs", "retry", run.id)


def test_a_run_is_cancelled(shop_anywhere: CommandLine, films: Films) -> None:
    shop, run = shop_anywhere, films.start()

    assert shop.says("runs", "cancel", run.id) == f"Run {run.id} is cancelled.\n"
    assert shop.json("runs", "cancel", run.id)["state"] == "cancelled"
    assert shop.json("runs", "retry", run.id)["state"] == "running"


def test_pages_of_runs_follow_each_other(shop_anywhere: CommandLine, films: Films) -> None:
    shop, ids = shop_anywhere, [films.start().id for _ in range(3)]

    first = shop.json("runs", "list", "--limit", "2")
    second = shop.json("runs", "list", "--limit", "2", "--before", first["next_before"])

    assert [run["id"] for run in first["runs"] + second["runs"]] == ids[::-1]
    assert second["next_before"] is None


def test_a_run_that_cannot_be_retried_says_why(shop_anywhere: CommandLine, films: Films) -> None:
    shop, run = shop_anywhere, films.start()

    assert "it has not ended" in shop.fails(1, "runs", "retry", run.id)


def test_an_unknown_run_is_explained(shop: CommandLine) -> None:
    for command in ("show", "watch", "retry", "cancel"):
        assert "there is no such run" in shop.fails(1, "runs", command, new_id())
    assert "is not a run id" in shop.fails(2, "runs", "show", "film:7")
