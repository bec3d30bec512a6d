"""Probes and metrics of a worker whose database goes away and comes back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stagepost.database.migrate import migrate
from tests.acceptance.cli.command_line import CommandLine
from tests.acceptance.cli.scraping import LIMIT, address_in_log, get, scrape, value
from tests.fault.servers import PrivatePostgres
from tests.services.processes import wait_until


def test_a_worker_without_its_database_is_alive_but_not_ready(
    private_postgres: PrivatePostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shop = CommandLine(tmp_path, private_postgres.url)
    migrate(shop.store)
    shop.store.close()
    process = shop.start("worker", "--http", "0")
    try:
        follow_outage(process, private_postgres)
    finally:
        process.kill()
        process.communicate()


def follow_outage(process: subprocess.Popen[str], server: PrivatePostgres) -> None:
    url = address_in_log(process)
    wait_until(lambda: get(f"{url}/readyz").status == 200, "the worker is ready", seconds=LIMIT)

    server.stop("immediate")

    wait_until(lambda: get(f"{url}/readyz").status == 503, "the worker is not ready", seconds=LIMIT)
    assert get(f"{url}/readyz").text.startswith("The database does not answer.")
    assert get(f"{url}/livez").status == 200
    assert get(f"{url}/metrics/fleet") == (503, "The database does not answer.\n", "text/plain; charset=utf-8")
    wait_until(
        lambda: (value(scrape(f"{url}/metrics"), "tasks_loop_failures_total", loop="claimer") or 0) > 0,
        "the failures are counted",
        seconds=LIMIT,
    )

    server.start()

    wait_until(lambda: get(f"{url}/readyz").status == 200, "the worker is ready again", seconds=LIMIT)
    assert get(f"{url}/metrics/fleet").status == 200
