"""The Grafana board and the Prometheus rules: they use only metrics that exist, and promtool accepts the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, Settings, Worker
from stagepost.metrics import FleetCollector, ProcessCollector

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/stagepost.rules.yml"
BOARD = ROOT / "deploy/grafana/stagepost.json"
PAGE = ROOT / "docs/how-to/metrics.md"
LIMIT = 60.0


@pytest.fixture
def metrics(tmp_path: Path) -> set[str]:
    """The names of all samples; with a broker, because some metrics are about it."""
    url = f"sqlite:///{tmp_path}/stagepost.db"
    app = App(settings=Settings(database_url=url, transport="amqp://nobody@127.0.0.1:1"))
    app.task(name="mail", queue="letters")(lambda: None).enqueue()
    app.counts.note_attempts([("mail", "completed", 1.0)])
    app.counts.note_write("settle")
    collectors = (ProcessCollector(app, Worker(app)), FleetCollector(app))
    families = [family for collector in collectors for family in collector.collect()]
    app.close()
    return {sample.name for family in families for sample in family.samples}


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\btasks_\w+", text))


def panels() -> list[dict[str, Any]]:
    board: dict[str, Any] = json.loads(BOARD.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = board["panels"]
    return found


def test_rules_use_only_metrics_that_exist(metrics: set[str]) -> None:
    assert names_in(RULES.read_text(encoding="utf-8")) - metrics == set()


def test_the_board_uses_only_metrics_that_exist(metrics: set[str]) -> None:
    assert names_in(BOARD.read_text(encoding="utf-8")) - metrics == set()


def test_every_metric_is_on_the_page(metrics: set[str]) -> None:
    base = {re.sub(r"(_seconds)_(bucket|count|sum)$", r"\1", name) for name in metrics}

    assert base - names_in(PAGE.read_text(encoding="utf-8")) == set()


def test_panels_have_different_numbers_and_places() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]

    assert len(set(places)) == len({panel["id"] for panel in panels()}) == len(panels())


def test_prometheus_accepts_the_rules() -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed; Debian has it in the package prometheus")

    checked = subprocess.run(
        [promtool, "check", "rules", str(RULES)], check=False, capture_output=True, text=True, timeout=LIMIT
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
