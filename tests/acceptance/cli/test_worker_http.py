"""`stagepost worker --http`: metrics and probes of a real process, read over HTTP."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics import parser

from tests.acceptance.cli.command_line import CommandLine
from tests.acceptance.cli.scraping import LIMIT, address_in_log, get, scrape, value
from tests.services.processes import free_port, wait_until

Start = Callable[..., subprocess.Popen[str]]

families_of: Any = parser.text_string_to_metric_families
"""Reads OpenMetrics; the package does not say with which types."""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts commands of a project, and ends what is left of them."""
    started: list[subprocess.Popen[str]] = []

    def begin(shop: CommandLine, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        started.append(shop.start(*arguments, **options))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def has_ended(shop: CommandLine, job_id: str) -> bool:
    return shop.json("jobs", "show", job_id)["state"] in {"completed", "failed", "dead_letter"}


def test_a_scrape_shows_what_the_worker_ran(shop_anywhere: CommandLine, start: Start) -> None:
    shop = shop_anywhere
    jobs = [shop.enqueue("mail", '"a"'), shop.enqueue("mail", '"b"'), shop.enqueue("fail", "1")]
    jobs.append(shop.enqueue("refuse", "2"))
    url = address_in_log(start(shop, "worker", "--concurrency", "3", "--http", "0"))
    wait_until(lambda: all(has_ended(shop, job) for job in jobs), "all jobs end", seconds=LIMIT)

    # A worker counts attempts after it has committed them.
    wait_until(
        lambda: value(scrape(f"{url}/metrics"), "tasks_dlq_entered_total", taskType="shop.fail") == 1,
        "the last attempt is counted",
        seconds=LIMIT,
    )
    samples = scrape(f"{url}/metrics")

    name = "tasks_execution_seconds_count"
    assert value(samples, name, taskType="shop.mail", status="completed") == 2
    assert value(samples, name, taskType="shop.fail", status="retrying") == 1
    assert value(samples, name, taskType="shop.fail", status="dead_letter") == 1
    assert value(samples, name, taskType="shop.refuse", status="failed") == 1
    bucket = "tasks_execution_seconds_bucket"
    assert value(samples, bucket, taskType="shop.mail", status="completed", le="+Inf") == 2
    assert value(samples, "tasks_retries_total", taskType="shop.fail") == 1
    assert value(samples, "tasks_retries_total", taskType="shop.mail") == 0
    assert value(samples, "tasks_dlq_entered_total", taskType="shop.refuse") == 1
    assert value(samples, "tasks_submitted_total", taskType="shop.mail") == 0  # another process enqueued them
    assert (value(samples, "tasks_state_db_updates_total", operation="settle") or 0) >= 1
    assert value(samples, "tasks_worker_slots") == 3
    assert value(samples, "tasks_worker_busy_slots") == 0
    assert value(samples, "tasks_leases_lost_total") == 0
    assert value(samples, "tasks_rescues_total") == 0
    assert value(samples, "tasks_loop_failures_total", loop="claimer") == 0


def test_the_fleet_is_read_from_the_database(shop_anywhere: CommandLine, start: Start) -> None:
    shop = shop_anywhere
    shop.enqueue("wait", '"never"')
    shop.says("queues", "pause", "slow")
    url = address_in_log(start(shop, "worker", "--queues", "default", "--concurrency", "3", "--http", "0"))
    wait_until(
        lambda: value(scrape(f"{url}/metrics/fleet"), "tasks_workers_alive") == 1, "the worker reports", seconds=LIMIT
    )

    samples = scrape(f"{url}/metrics/fleet")

    assert value(samples, "tasks_queue_jobs", queue="slow", state="queued") == 1
    assert value(samples, "tasks_queue_jobs", queue="slow", state="running") == 0
    assert (value(samples, "tasks_queue_lag_seconds", queue="slow") or 0) > 0
    assert value(samples, "tasks_queue_paused", queue="slow") == 1
    assert value(samples, "tasks_workers_slots") == 3
    assert value(samples, "tasks_batches_unfinished", kind="batch") == 0


def test_openmetrics_is_served_to_those_who_accept_it(shop: CommandLine, start: Start) -> None:
    url = address_in_log(start(shop, "worker", "--http", "0"))

    for path in ("/metrics", "/metrics/fleet"):
        reply = get(url + path, accept="application/openmetrics-text; version=1.0.0")
        assert reply.content_type.startswith("application/openmetrics-text")
        assert list(families_of(reply.text))
        assert get(url + path).content_type.startswith("text/plain")


def test_probes_follow_the_life_of_a_worker(shop: CommandLine, start: Start) -> None:
    job_id = shop.enqueue("wait", '"file"')
    process = start(shop, "worker", "--http", "0", "--shutdown-timeout", "1200")
    url = address_in_log(process)
    wait_until(lambda: get(f"{url}/readyz").status == 200, "the worker is ready", seconds=LIMIT)
    assert get(f"{url}/livez").status == 200
    wait_until(lambda: shop.json("jobs", "show", job_id)["state"] == "running", "the job runs", seconds=LIMIT)

    process.send_signal(signal.SIGTERM)

    wait_until(lambda: get(f"{url}/readyz").status == 503, "the worker is not ready any more", seconds=LIMIT)
    assert get(f"{url}/readyz").text == "The worker is stopping.\n"
    assert get(f"{url}/livez") == (200, "The worker is stopping.\n", "text/plain; charset=utf-8")
    (shop.folder / "file").touch()
    process.communicate(timeout=LIMIT)
    assert process.returncode == 0


def test_a_port_in_use_ends_the_command_with_a_message(shop: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        said = shop.fails(2, "worker", "--http", port)

    assert f"--http 127.0.0.1:{port}: cannot listen there: Address already in use" in said


def test_a_wrong_address_ends_the_command_with_a_message(shop: CommandLine) -> None:
    assert "give HOST:PORT or PORT" in shop.fails(2, "worker", "--http", "localhost")
    assert "fewer processes" in shop.fails(2, "worker", "--http", "65535", "--processes", "2")


def test_each_of_several_processes_has_a_port_of_its_own(shop: CommandLine, start: Start) -> None:
    port = two_free_ports()
    start(shop, "worker", "--processes", "2", "--http", str(port))

    for own in (port, port + 1):
        wait_until(lambda own=own: is_ready(own), f"port {own} answers", seconds=LIMIT)  # type: ignore[misc]


def is_ready(port: int) -> bool:
    try:
        return get(f"http://127.0.0.1:{port}/readyz").status == 200
    except OSError:
        return False


def two_free_ports() -> int:
    while True:
        port = free_port()
        try:
            socket.create_server(("127.0.0.1", port + 1)).close()
        except OSError:
            continue
        return port


def test_without_the_extra_only_metrics_are_missing(shop: CommandLine, start: Start) -> None:
    (shop.folder / "sitecustomize.py").write_text("import sys\nsys.modules['prometheus_client'] = None\n")
    shop.environment["PYTHONPATH"] = str(shop.folder)
    url = address_in_log(start(shop, "worker", "--http", "0"))
    wait_until(lambda: get(f"{url}/readyz").status == 200, "the worker is ready", seconds=LIMIT)

    assert get(f"{url}/livez").status == 200
    for path in ("/metrics", "/metrics/fleet"):
        reply = get(url + path)
        assert (reply.status, "pip install 'stagepost[metrics]'" in reply.text) == (501, True)


def test_a_program_that_only_works_does_not_load_the_extra() -> None:
    code = "import sys, stagepost.worker.worker, stagepost.cli.main; sys.exit('prometheus_client' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=LIMIT).returncode == 0
