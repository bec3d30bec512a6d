"""`transport` contains no SQL: what a database announces is heard by `database`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stagepost

STATEMENT = re.compile(
    r"\s*(select|insert\s+into|update\s+\w+\s+set|delete\s+from|listen|unlisten|notify|pragma|begin|commit|rollback|"
    r"set\s+(session|local)|create|alter|drop|with\s+\w+\s+as)\b",
    re.IGNORECASE,
)
RUNS_SQL = {"execute", "executemany", "executescript"}


def sql_in(source: str) -> list[str]:
    """List the statements among a module's texts, and its calls of methods that run statements."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            found += [node.value] if STATEMENT.match(node.value) else []
        if isinstance(node, ast.Attribute) and node.attr in RUNS_SQL:
            found.append(ast.unparse(node))
    return found


def modules_of(package: str) -> list[Path]:
    return sorted((Path(stagepost.__path__[0]) / package).rglob("*.py"))


@pytest.mark.parametrize("path", modules_of("transport"), ids=lambda path: path.stem)
def test_transport_has_no_sql(path: Path) -> None:
    assert sql_in(path.read_text()) == []


def test_the_check_finds_sql_where_there_is_some() -> None:
    for path in modules_of("database/wakeups"):
        if path.stem in {"postgres", "sqlite"}:
            assert len(sql_in(path.read_text())) >= 4
