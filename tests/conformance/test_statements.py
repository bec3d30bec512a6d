"""Rules for every `.sql` file, so that databases do not drift apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stagepost.store

ROOT = Path(stagepost.store.__file__).parent / "sql"
DIALECTS = ("sqlite", "postgres", "mysql")
OVERRIDES = [path for dialect in DIALECTS for path in sorted((ROOT / dialect).glob("*.sql"))]


def in_folder(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def names_in(folder: str) -> set[str]:
    return {path.stem for path in (ROOT / folder).glob("*.sql")}


@pytest.mark.parametrize("path", OVERRIDES, ids=in_folder)
def test_an_override_says_why_it_differs(path: Path) -> None:
    assert path.read_text().startswith("-- Differs: ")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_statement_exists_for_every_database(dialect: str) -> None:
    everything = names_in("common").union(*map(names_in, DIALECTS))

    assert names_in(dialect) | names_in("common") == everything


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_override_is_not_what_it_overrides(dialect: str) -> None:
    for name in names_in(dialect) & names_in("common"):
        texts = [(ROOT / folder / f"{name}.sql").read_text() for folder in (dialect, "common")]
        ours, common = (re.sub(r"^--.*\n", "", text, flags=re.MULTILINE).split() for text in texts)
        assert ours != common, name


@pytest.mark.parametrize("path", sorted((ROOT / "mysql").glob("*.sql")), ids=in_folder)
def test_text_taken_from_json_on_mysql_names_its_character_set(path: Path) -> None:
    """Otherwise it takes the database's, and what that lacks becomes question marks."""
    assert not re.findall(r"(?:varchar\(\d+\)|text) path", path.read_text())


@pytest.mark.parametrize("path", sorted((ROOT / "postgres").glob("*.sql")), ids=in_folder)
def test_json_parameters_reach_postgres_as_text(path: Path) -> None:
    """Otherwise a connection on which the caller lets asyncpg encode JSON encodes them once more."""
    sql = path.read_text()

    assert not re.findall(r"json_(?:to_recordset|array_elements_text)\(:\w+(?!\w|::text::json)", sql)
    assert not re.findall(r"cast\(:\w+ as json\)", sql)
    assert not re.findall(r":\w+::json", sql.replace("::text::json", ""))
