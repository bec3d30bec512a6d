"""The examples with a web server or a notebook are started as their readers would, and called from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.acceptance.helpers import LIMIT
from tests.services.processes import free_port, wait_until
from tests.services.web import Site, served

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = Path(sys.executable).parent
VARIABLES = {"PYTHONPATH": str(EXAMPLES), "PYTHONUNBUFFERED": "1"}


def uvicorn(port: int, *options: str) -> list[str]:
    """The command that starts the FastAPI example."""
    return [str(PROGRAMS / "uvicorn"), "fastapi_app:api", "--port", str(port), *options]


def order(site: Site, item: str) -> str:
    """Order something; returns the id of the job."""
    status, answer = site.post(f"/orders?item={item}")
    assert status == 202, answer
    job_id: str = answer["job"]
    return job_id


def result_of(site: Site, job_id: str) -> Any:
    """Ask for a job's state until it has ended; returns its result."""

    def has_ended() -> bool:
        return bool(site.get(f"/jobs/{job_id}")[1].get("state") == "completed")

    wait_until(has_ended, f"job {job_id} to end", seconds=LIMIT)
    return site.get(f"/jobs/{job_id}")[1]["result"]


def test_the_fastapi_example_runs_the_jobs_that_its_requests_commit(tmp_path: Path) -> None:
    port = free_port()
    with served(uvicorn(port), port=port, folder=tmp_path, variables=VARIABLES) as site:
        assert result_of(site, order(site, "tea")) == "confirmed: tea"
        assert site.get("/jobs/nothing")[0] == 404
        log = site.stop(signal.SIGTERM)

    assert "Application shutdown complete." in log
    assert "Traceback" not in log


@pytest.mark.prove
def test_the_fastapi_example_runs_with_two_processes(tmp_path: Path) -> None:
    port = free_port()
    with served(uvicorn(port, "--workers", "2"), port=port, folder=tmp_path, variables=VARIABLES) as site:
        jobs = [order(site, f"tea{number}") for number in range(10)]
        assert [result_of(site, job) for job in jobs] == [f"confirmed: tea{number}" for number in range(10)]
        log = site.stop(signal.SIGTERM)

    assert log.count("Application shutdown complete.") == 2
    assert "Traceback" not in log


@pytest.mark.prove
def test_the_fastapi_example_reloads_its_worker_with_its_code(tmp_path: Path) -> None:
    port, source = free_port(), tmp_path / "fastapi_app.py"
    source.write_text((EXAMPLES / "fastapi_app.py").read_text(encoding="utf-8"), encoding="utf-8")
    variables = {**VARIABLES, "PYTHONPATH": ""}
    with served(uvicorn(port, "--reload"), port=port, folder=tmp_path, variables=variables) as site:
        assert result_of(site, order(site, "tea")) == "confirmed: tea"
        source.write_text(source.read_text(encoding="utf-8").replace('f"confirmed:', 'f"sent:'), encoding="utf-8")
        wait_until(lambda: site.log.read_text().count("startup complete") > 1, "the reload", seconds=LIMIT)
        wait_until(site.is_up, "the server to listen again", seconds=LIMIT)
        assert result_of(site, order(site, "milk")) == "sent: milk"
        log = site.stop(signal.SIGTERM)

    assert "Traceback" not in log


def test_the_fastapi_example_refuses_to_start_without_its_database(tmp_path: Path) -> None:
    (tmp_path / "shop.db").write_text("not a database", encoding="utf-8")
    done = subprocess.run(
        uvicorn(free_port()),
        cwd=tmp_path,
        env={**os.environ, **VARIABLES},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

    assert done.returncode == 3
    assert "Application startup failed. Exiting." in done.stderr


def test_the_flask_example_runs_a_worker_in_its_process(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, str(EXAMPLES / "flask_app.py")]
    with served(command, port=port, folder=tmp_path, variables={**VARIABLES, "PORT": str(port)}) as site:
        assert result_of(site, order(site, "tea")) == "confirmed: tea"
        assert site.get("/jobs/nothing")[0] == 404
        log = site.stop(signal.SIGINT)

    assert site.process.returncode == 0, log
    assert "Traceback" not in log


@pytest.mark.prove
def test_the_flask_example_runs_beside_a_worker_process(tmp_path: Path) -> None:
    port = free_port()
    command = [str(PROGRAMS / "flask"), "--app", "flask_app:api", "run", "--port", str(port)]
    with served(command, port=port, folder=tmp_path, variables=VARIABLES) as site:
        job = order(site, "tea")
        assert site.get(f"/jobs/{job}")[1]["state"] == "queued"
        done = subprocess.run(
            [str(PROGRAMS / "stagepost"), "worker", "--app", "flask_app:jobs", "--until-idle"],
            cwd=tmp_path,
            env={**os.environ, **VARIABLES},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert result_of(site, job) == "confirmed: tea"


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    text = (EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8")
    notebook: Any = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=int(LIMIT), resources={"metadata": {"path": str(tmp_path)}}).execute()

    shown = [
        output.get("text") or output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    ]
    assert shown == ["'__main__.square'", "(9, 14)", "144\n"]


def test_the_notebook_is_stored_without_outputs() -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]

    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
