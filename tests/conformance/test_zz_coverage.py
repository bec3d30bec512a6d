"""Runs last: each statement of each database must have run, otherwise it is untested."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagepost.database.dialect import MYSQL, POSTGRES, SQLITE
from tests.conformance.ran import RAN, all_statements


def test_every_statement_ran_on_every_database(request: pytest.FixtureRequest) -> None:
    if reason := _why_partial(request.session):
        pytest.skip(f"NOT CHECKED whether every statement ran: {reason}")
    tried = {name for name, _, _ in RAN}
    dialects = [dialect for dialect in (SQLITE, POSTGRES, MYSQL) if dialect.name in tried]

    missing = set().union(*(all_statements(dialect) for dialect in dialects)) - RAN

    assert not missing, "never ran: " + ", ".join(f"{folder}/{name}[{part}]" for folder, name, part in sorted(missing))
    if len(dialects) < 3:
        pytest.skip(f"NOT CHECKED for every database: only {', '.join(sorted(tried))} could be had")


def _why_partial(session: pytest.Session) -> str | None:
    """Say why this run may not have had every test of the suite."""
    option = session.config.option
    if option.keyword or option.markexpr or option.deselect or getattr(option, "lf", False):
        return "some tests were left out"
    if any("::" in argument for argument in session.config.args):
        return "single tests were chosen"
    if session.testsfailed:
        return "some tests failed"
    files = set(Path(__file__).parent.glob("test_*.py"))
    left_out = sorted(path.name for path in files - {item.path for item in session.items})
    return f"{', '.join(left_out)} did not run" if left_out else None
