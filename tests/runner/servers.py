"""Private database servers that all pieces of a run share, without waiting for the disk at every commit."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.services import mariadb, postgres
from tests.services.locate import MARIADB, POSTGRES

FAULT_VARIABLES = {"postgres": "STAGEPOST_FAULT_POSTGRES_URL", "mariadb": "STAGEPOST_FAULT_MARIADB_URL"}
"""Where fault tests look for a server on which workers are killed; servers that are hurt are never shared."""
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
ENOUGH_BYTES = 4 * 2**30
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"


@contextlib.contextmanager
def shared_servers() -> Iterator[dict[str, str]]:
    """Start them, unless an address is given or the programs are missing; gives the variables that tell tests."""
    variables: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        if POSTGRES.variable not in os.environ and postgres.PostgresInstance.missing_program() is None:
            url = stack.enter_context(postgres.PostgresInstance(postgres.UNSYNCED)).url
            variables |= {POSTGRES.variable: url, FAULT_VARIABLES["postgres"]: url}
        if MARIADB.variable not in os.environ and mariadb.MariadbInstance.missing_program() is None:
            url = stack.enter_context(mariadb.MariadbInstance(mariadb.UNSYNCED)).url
            variables |= {MARIADB.variable: url, FAULT_VARIABLES["mariadb"]: url}
        if TEMPORARY not in os.environ and _has_memory():
            folder = tempfile.mkdtemp(prefix="stagepost-tests-", dir=MEMORY)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            variables[TEMPORARY] = folder  # SQLite syncs at every commit
        yield variables


def _has_memory() -> bool:
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ENOUGH_BYTES
