"""Faults under the worker of a Django project."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.acceptance.django.project import QUICK, Project, database_facts
from tests.fault.servers import PrivatePostgres
from tests.services.processes import wait_until

JOBS = 5
ENQUEUE = f"""
order = Order.objects.create(product="tea")
for _ in range({JOBS}):
    receipt.using(max_attempts=1).enqueue(order.pk)
"""


def test_a_restart_of_the_database_does_not_poison_a_django_worker(
    private_postgres: PrivatePostgres, tmp_path: Path
) -> None:
    """F77: each thread keeps its Django connection, which the restart breaks while the thread is idle."""
    facts = database_facts(private_postgres.url, CONN_MAX_AGE=None)
    other = database_facts(f"sqlite:///{tmp_path}/other.db")
    project = Project({"default": facts, "other": other}, settings={**QUICK, "CONCURRENCY": 2})
    project.run("migrate", "--run-syncdb")

    def completed() -> int:
        jobs = json.loads(project.run("stagepost", "jobs", "list", "--json"))["jobs"]
        assert {job["state"] for job in jobs} <= {"queued", "running", "completed"}, jobs
        return sum(job["state"] == "completed" for job in jobs)

    worker = project.start("stagepost", "worker")
    try:
        project.shell(ENQUEUE)
        wait_until(lambda: completed() == JOBS, "the first jobs", seconds=120)

        private_postgres.restart_immediate()

        project.shell(ENQUEUE)
        wait_until(lambda: completed() == 2 * JOBS, "the jobs after the restart", seconds=120)
    finally:
        worker.send_signal(signal.SIGTERM)
        output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0, output
