"""Records which statements ran on which database; the last test of the suite demands all of them."""

from __future__ import annotations

from collections.abc import Generator
from importlib.resources import files
from typing import Any

from stagepost.clock import Clock
from stagepost.database import dialect as dialects
from stagepost.database import runner
from stagepost.database.dialect import Dialect, ParameterStyle, SqlCall
from stagepost.database.statement import Rows, Statement

RAN: set[tuple[str, str, int]] = set()
"""Dialect, name of the file, and position within it of every statement a database has accepted."""

_calls_of = dialects.calls_of
_load_text = Dialect.load_text


def start_recording() -> None:
    """Note from now on what databases accept."""
    runner.calls_of = _recorded  # type: ignore[attr-defined]
    Dialect.load_text = _recorded_load  # type: ignore[assignment, method-assign]


def stop_recording() -> None:
    runner.calls_of = _calls_of  # type: ignore[attr-defined]
    Dialect.load_text = _load_text  # type: ignore[method-assign]


def all_statements(dialect: Dialect) -> set[tuple[str, str, int]]:
    """Every statement of every file that is effective for a dialect."""
    root = files("stagepost.store") / "sql"
    paths = [*(root / dialect.name).iterdir(), *(root / "common").iterdir()]
    names = {path.name.removesuffix(".sql") for path in paths}
    return {
        (dialect.name, name, position)
        for name in names
        for position, _ in enumerate(dialect.script(name, ParameterStyle.NAMED, own_clock=True).texts)
    }


def _recorded(
    statement: Statement, *, dialect: Dialect, style: ParameterStyle, clock: Clock, needs_transaction: bool = True
) -> Generator[SqlCall, Rows, Rows]:
    script = dialect.script(
        statement.name, style, own_clock=clock.instant() is not None, given=statement.parameters.keys()
    )
    positions: dict[str, Any] = {text.sql: position for position, text in enumerate(script.texts)}
    calls = _calls_of(statement, dialect=dialect, style=style, clock=clock, needs_transaction=needs_transaction)
    try:
        call = next(calls)
        while True:
            rows = yield call
            RAN.add((dialect.name, statement.name, positions[call.sql]))
            call = calls.send(rows)
    except StopIteration as end:
        result: Rows = end.value
        return result


def _recorded_load(dialect: Dialect, name: str) -> str | None:
    RAN.add((dialect.name, name, 0))  # asked for right before it is used
    return _load_text(dialect, name)
