"""What `stagepost worker` and `stagepost dev` print about jobs, as text and as JSON."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from stagepost.config.logging import FORMAT_VARIABLE
from tests.acceptance.cli.command_line import CommandLine
from tests.services.processes import wait_until

LIMIT = 120.0
IN_PROCESS = """

@app.task(pool="process", retry=RetryPolicy(max_attempts=1))
def crunch() -> None:
    import logging
    logging.getLogger("shop").warning("two\\nlines", extra={"order": 7})
    raise ValueError("no numbers")
"""


def ran(shop: CommandLine, *arguments: str) -> str:
    """Run a worker until nothing is due; returns what it printed."""
    process = shop.start("worker", "--until-idle", *arguments)
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said
    return said


def test_a_worker_prints_the_traceback_of_a_handler_from_the_code_of_the_user(shop: CommandLine) -> None:
    shop.enqueue("fail", "7")
    completed = shop.enqueue("mail", '"ada"')

    said = ran(shop)

    [first, second] = said.split("Traceback (most recent call last):\n")[1:]
    assert first.startswith(f'  File "{shop.folder}/shop.py", line ')
    assert "ValueError: order 7: the bridge is down" in second
    assert "next in 0.0 s" in said
    assert "and the job ended as dead_letter: ValueError: order 7" in said
    assert completed not in said, "attempts that completed are left out by default"


def test_a_worker_prints_one_line_per_end_at_info(shop: CommandLine) -> None:
    jobs = [shop.enqueue("mail", '"ada"') for _ in range(3)]

    said = ran(shop, "--log-level", "info")

    for job_id in jobs:
        [line] = [line for line in said.splitlines() if job_id in line]
        assert f"INFO    stagepost.attempts: attempt 1 of job {job_id} (shop.mail) completed after 0." in line


def test_every_line_of_a_json_log_is_an_object(shop: CommandLine) -> None:
    file = shop.folder / "shop.py"
    file.write_text(file.read_text(encoding="utf-8") + IN_PROCESS, encoding="utf-8")
    job_id = shop.enqueue("crunch")

    records = [json.loads(line) for line in ran(shop, "--log-format", "json", "--processes", "1").splitlines()]

    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(record) for record in records))
    assert "worker process 1 of 1 started" in records[0]["message"]
    [own] = [record for record in records if record["logger"] == "shop"]
    assert (own["message"], own["order"], own["job_id"], own["queue"]) == ("two\nlines", 7, job_id, "default")
    [end] = [record for record in records if record["logger"] == "stagepost.attempts"]
    assert (end["job_id"], end["task"], end["attempt"], end["level"]) == (job_id, "shop.crunch", 1, "error")
    assert 'raise ValueError("no numbers")' in end["exception"]


@pytest.fixture
def dev(shop: CommandLine) -> Iterator[subprocess.Popen[str]]:
    process = shop.start("dev", start_new_session=True)
    yield process
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)


def test_dev_prints_every_end(shop: CommandLine, dev: subprocess.Popen[str]) -> None:
    completed, failed = shop.enqueue("mail", '"ada"'), shop.enqueue("refuse", "7")
    wait_until(lambda: shop.json("jobs", "show", failed)["state"] == "failed", "the job failed", seconds=LIMIT)
    assert dev.stdout is not None
    said = ""
    while not ("completed after" in said and "\nstagepost.errors.Permanent: order 7" in said):
        said += dev.stdout.readline()

    assert completed in said
    assert f'File "{shop.folder}/shop.py"' in said


def test_the_environment_chooses_the_format(shop: CommandLine) -> None:
    shop.environment[FORMAT_VARIABLE] = "json"
    shop.enqueue("mail", '"ada"')

    said = ran(shop)

    first: dict[str, Any] = json.loads(said.splitlines()[0])
    assert first["level"] == "info"


def test_an_unknown_format_is_refused(shop: CommandLine) -> None:
    assert "'xml' is not one of 'text', 'json'" in shop.fails(2, "worker", "--log-format", "xml")
