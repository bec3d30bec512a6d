"""Negative controls: each fault that is planted in the product makes a test fail, mostly of this suite."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.depth import VARIABLE
from tests.fault.backends import Backend
from tests.fault.mutants import MUTANTS, Mutant, changed_text, planted
from tests.fault.nursery import ROOT
from tests.fault.rabbit import URL_VARIABLE
from tests.runner.servers import FAULT_VARIABLES

AT_ONCE = 2
SLOW_SECONDS = 400
"""How much longer than its test a whole run may take on a busy machine, which is nobody's fault."""
FAILED_TESTS = 1
"""pytest's exit code when tests ran and some failed; others mean that none ran."""

SHARPEST = {
    "end_jobs of sqlite without the attempt",
    "end_jobs of postgres without the attempt",
    "end_jobs of mysql without the attempt",
    "a claim on PostgreSQL that locks nothing",
    "a claim on MariaDB that locks nothing",
    "a rescue that does not look at leases",
    "an end on PostgreSQL that is not counted",
    "a conclusion that locks no batch",
    "a failed rollback that hides what went wrong before it",
    "a handler's transaction that commits after an error",
}
"""What `./dev test` plants: broken fences, claims, counts and swallowed errors."""

Runs = dict[str, "Future[subprocess.CompletedProcess[str]]"]


@pytest.fixture(scope="module")
def runs(
    postgres_backend: Backend,
    mariadb_backend: Backend,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Runs]:
    """Every chosen mutant's test run, some at a time, on this run's servers."""
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    mutants = [given["mutant"] for given in parameters if isinstance(given.get("mutant"), Mutant)]
    chosen = {mutant.name for mutant in mutants}
    servers = {
        FAULT_VARIABLES["postgres"]: postgres_backend.url,
        FAULT_VARIABLES["mariadb"]: mariadb_backend.url,
    }
    if any("rabbitmq" in mutant.killer for mutant in mutants):
        servers[URL_VARIABLE] = request.getfixturevalue("rabbitmq_url")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            mutant.name: pool.submit(run_killer, mutant, tmp_path_factory.mktemp("mutant"), servers)
            for mutant in MUTANTS
            if mutant.name in chosen
        }


def run_killer(mutant: Mutant, folder: Path, servers: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a mutant's test against the mutant."""
    path = os.pathsep.join([str(planted(mutant, folder)), str(ROOT)])
    options = ["-q", "-x", "-p", "no:cacheprovider", f"--timeout={mutant.seconds}", "-o", "timeout_func_only=true"]
    command = [sys.executable, "-m", "pytest", *options, mutant.test]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **servers, "PYTHONPATH": path, VARIABLE: "proof"},
        capture_output=True,
        text=True,
        timeout=mutant.seconds + SLOW_SECONDS,
        check=False,
    )


@pytest.mark.timeout(3 * SLOW_SECONDS)
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name, marks=() if one.name in SHARPEST else pytest.mark.prove) for one in MUTANTS],
)
def test_a_planted_fault_is_noticed(runs: Runs, mutant: Mutant) -> None:
    run = runs[mutant.name].result(timeout=2 * SLOW_SECONDS)

    assert run.returncode == FAILED_TESTS, (
        f"{mutant.killer} did not fail with {mutant.name!r} planted in {mutant.file}:\n{run.stdout[-3000:]}"
    )
    assert "1 failed" in run.stdout, run.stdout[-3000:]


@pytest.mark.parametrize("known", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_code(known: Mutant) -> None:
    assert changed_text(known)


@pytest.mark.parametrize("known", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutants_killer_exists(known: Mutant) -> None:
    file, name = known.test.partition("[")[0].split("::")

    assert f"def {name}(" in (ROOT / file).read_text()


def test_the_sharpest_mutants_exist() -> None:
    assert {mutant.name for mutant in MUTANTS} >= SHARPEST


def test_a_mutant_that_no_longer_fits_is_an_error(tmp_path: Path) -> None:
    gone = Mutant("gone", "clock.py", "no such text", "", killer="")

    with pytest.raises(LookupError, match="The code has changed"):
        planted(gone, tmp_path)
