"""Runs last: each statement of each database must have run, or nobody knows whether it works."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagepost.store.dialect import MYSQL, POSTGRES, SQLITE, Dialect
from tests.conformance.ran import RAN, all_statements


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES, MYSQL], ids=lambda dialect: dialect.name)
def test_every_statement_ran_on_every_database(request: pytest.FixtureRequest, dialect: Dialect) -> None:
    if reason := _partial(request.session):
        pytest.skip(f"NOT CHECKED whether every statement ran: {reason}")
    if not any(name == dialect.name for name, _, _ in RAN):
        pytest.skip(f"NOT CHECKED: no test ran on {dialect.name}; see the services above")

    missing = all_statements(dialect) - RAN

    assert not missing, "never ran: " + ", ".join(f"{name}.sql[{part}]" for _, name, part in sorted(missing))


def _partial(session: pytest.Session) -> str | None:
    """Say why this run may not have had every test of the suite."""
    option = session.config.option
    if option.keyword or option.markexpr or getattr(option, "lf", False) or session.testsfailed:
        return "some tests were left out or failed"
    here = Path(__file__).parent
    files = {path for path in here.glob("test_*.py") if path.name != Path(__file__).name}
    collected = {item.path for item in session.items}
    if left_out := sorted(path.name for path in files - collected):
        return f"{', '.join(left_out)} did not run"
    if any("::" in argument for argument in session.config.args):
        return "single tests were chosen"
    return None
