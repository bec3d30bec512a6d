"""`stagepost demo`: it passes on every database, and its audit finds what is wrong."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagepost.cli.demo.plan import Kind, Plan
from stagepost.cli.demo.show import Rescue, Show
from stagepost.cli.layout import Bar
from stagepost.database import Store
from tests.acceptance.cli.command_line import CommandLine

LEASE = "6"
"""Ends soon after the kill; a worker that lives loses its jobs only to a stall, and no job to three of them."""
LONG_WAY = """
import asyncio, pathlib, types
from stagepost.cli.demo import app as demo

async def until_the_kill(_seconds):
    while not pathlib.Path({gate!r}).exists():
        await asyncio.sleep(0.02)

demo.asyncio = types.SimpleNamespace(sleep=until_the_kill, to_thread=asyncio.to_thread)
"""


@pytest.fixture
def demo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo makes its temporary folder."""
    place = tmp_path / "demo"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@pytest.fixture
def _long_way_lasts_until_the_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker have jobs in its hands when it is killed, however late the demo sees that it is time to."""
    gate, modules = tmp_path / "killed", tmp_path / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(LONG_WAY.format(gate=str(gate)), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(modules), prepend=os.pathsep)
    kill_one = Show._kill_one

    def kill_and_tell(show: Show, bar: Bar) -> Rescue:
        rescue = kill_one(show, bar)
        gate.touch()
        return rescue

    monkeypatch.setattr(Show, "_kill_one", kill_and_tell)


@pytest.mark.usefixtures("_long_way_lasts_until_the_kill")
def test_the_demo_explains_itself_and_passes_on_a_temporary_file(shop: CommandLine, demo_folder: Path) -> None:
    result = shop.run("demo", "--items", "300", "--lease", LEASE)

    assert result.exit_code == 0, result.output
    [folder] = demo_folder.iterdir()
    assert f"It puts 300 jobs into a database: sqlite:///{folder}/demo.db" in result.stderr
    assert re.search(r"Killed worker \d \(process \d+, SIGKILL\)", result.stderr)
    assert re.search(r"\d+ jobs of the dead worker were rescued", result.stderr)
    assert re.search(r"^lost +0 +0$", result.stdout, flags=re.MULTILINE)
    assert re.search(r"^lines written twice +0 +0$", result.stdout, flags=re.MULTILINE)
    assert "Nothing was lost, and nothing was done twice." in result.stderr


@pytest.mark.parametrize("database", ["postgres_database", "mariadb_database"])
@pytest.mark.usefixtures("demo_folder", "_long_way_lasts_until_the_kill")
@pytest.mark.prove
def test_the_demo_passes_on_a_server(shop: CommandLine, request: pytest.FixtureRequest, database: str) -> None:
    url = request.getfixturevalue(database)

    result = shop.run("demo", "--items", "300", "--lease", LEASE, "--database", url, "--json")

    assert result.exit_code == 0, result.output
    sums = json.loads(result.stdout)
    assert (sums["sound"], sums["jobs"], sums["completed"], sums["dead_letters"]) == (True, 300, 292, 8)
    assert (sums["lost"], sums["effects_applied_twice"], sums["effects_missing"]) == (0, 0, 0)
    assert sums["rescued"] > 0
    for planted in PLANTED:
        assert_found(shop, url, sums["run"], planted)


@dataclass(frozen=True)
class Planted:
    """A change of the tables by hand, and what the audit must say of it; nothing if all is right again."""

    statement: str
    wrong: str | None


PLANTED = (
    Planted(
        "insert into stagepost_demo_ledger (job_id, line, run, item, attempt) "
        "select job_id, 'again', run, item, attempt from stagepost_demo_ledger where item = 1",
        wrong="effects_applied_twice",
    ),
    Planted("delete from stagepost_demo_ledger where line = 'again'", wrong=None),
    Planted("update stagepost_demo_ledger set attempt = 9 where item = 1", wrong="effects_without_completion"),
    Planted("delete from stagepost_demo_ledger where item = 1", wrong="effects_missing"),
    Planted("delete from stagepost_job_history where task_name = 'demo.greet'", wrong="lost"),
)


def assert_found(shop: CommandLine, url: str, run: str, planted: Planted) -> None:
    store = Store.at(url)
    with store.transaction() as connection:
        connection.execute(planted.statement, {})
    store.close()

    result = shop.run("demo", "--audit", run, "--database", url, "--json")

    sums = json.loads(result.stdout)
    assert (result.exit_code, sums["sound"]) == ((0, True) if planted.wrong is None else (1, False)), planted
    assert planted.wrong is None or sums[planted.wrong] > 0


def test_an_audit_of_an_unknown_run_is_explained(shop: CommandLine) -> None:
    shop.fails(4, "demo", "--audit", "demo-x")


def test_a_plan_has_items_of_every_kind_and_adds_up() -> None:
    for items in (100, 101, 300, 5000):
        plan = Plan(items)

        assert set(plan.counts) == set(Kind)
        assert plan.counts.total() == items
        assert plan.effects + plan.dead + plan.counts[Kind.GREET] == items
