"""`stagepost demo`: it passes on every database, and its audit finds what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagepost.cli.demo.plan import Kind, Plan
from tests.acceptance.cli.command_line import CommandLine


@pytest.fixture
def demo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the demo makes its temporary folder."""
    place = tmp_path / "demo"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    shutil.rmtree(place)


@pytest.mark.usefixtures("demo_folder")
def test_the_demo_passes_and_its_audit_finds_what_is_planted(shop_anywhere: CommandLine) -> None:
    shop = shop_anywhere
    result = shop.run("demo", "--items", "300", "--database", shop.url, "--json")
    assert result.exit_code == 0, result.output
    sums = json.loads(result.stdout)

    assert (sums["sound"], sums["jobs"], sums["completed"], sums["dead_letters"]) == (True, 300, 292, 8)
    assert (sums["lost"], sums["effects_applied_twice"], sums["effects_missing"]) == (0, 0, 0)
    assert sums["rescued"] > 0
    assert sums["attempts"] == 300 + sums["rescued"] + sums["failed_attempts"] - 8
    for planted in PLANTED:
        assert_found(shop, sums["run"], planted)


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


def assert_found(shop: CommandLine, run: str, planted: Planted) -> None:
    with shop.store.transaction() as connection:
        connection.execute(planted.statement, {})

    result = shop.run("demo", "--audit", run, "--database", shop.url, "--json")

    sums = json.loads(result.stdout)
    assert (result.exit_code, sums["sound"]) == ((0, True) if planted.wrong is None else (1, False)), planted
    assert planted.wrong is None or sums[planted.wrong] > 0


def test_the_demo_makes_its_own_database_and_says_what_it_does(shop: CommandLine, demo_folder: Path) -> None:
    result = shop.run("demo", "--items", "100")

    assert result.exit_code == 0, result.output
    assert "It puts 100 jobs into a database" in result.stderr
    assert "Killed worker" in result.stderr
    assert "Nothing was lost, and nothing was done twice." in result.stderr
    assert "lines written twice" in result.stdout
    [folder] = demo_folder.iterdir()
    assert (folder / "demo.db").exists()


def test_an_audit_of_a_run_that_was_not_is_explained(shop: CommandLine) -> None:
    shop.fails(4, "demo", "--audit", "demo-x")


def test_a_plan_has_items_of_every_kind_and_adds_up() -> None:
    for items in (100, 101, 300, 5000):
        plan = Plan(items)

        assert set(plan.counts) == set(Kind)
        assert plan.counts.total() == items
        assert plan.effects + plan.dead + plan.counts[Kind.GREET] == items
