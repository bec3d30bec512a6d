"""A pytest plugin that writes what happens to a file, one JSON object per line, for the runner to follow."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import Any, TextIO

import pytest

OPTION = "--progress-file"
KIB = 1024


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=Path, help="write progress to this file, as JSON lines")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption(OPTION)
    if path is not None:
        config.pluginmanager.register(Progress(path.open("w", buffering=1)))


class Progress:
    """Writes one line when tests are collected, when one starts or ends, and when the session is over."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._started = 0.0
        self._outcome = "passed"
        self._properties: dict[str, Any] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(failed=report.nodeid or "collection", text=report.longreprtext)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write(total=len(session.items))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._started, self._outcome, self._properties = time.monotonic(), "passed", {}
        self._write(start=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._properties |= dict(report.user_properties)
        if report.failed:
            self._outcome = "failed"
            self._write(failed=report.nodeid, text=report.longreprtext)
        elif report.skipped and self._outcome == "passed":
            self._outcome = "skipped"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        seconds = round(time.monotonic() - self._started, 3)
        self._write(end=nodeid, outcome=self._outcome, seconds=seconds, properties=self._properties)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        self._write(peak_bytes=max(used.ru_maxrss for used in usage) * KIB)
        self._file.close()

    def _write(self, **facts: Any) -> None:
        self._file.write(json.dumps(facts) + "\n")
