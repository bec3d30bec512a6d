"""A planted fault, and a copy of the product that contains it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "stagepost"
SQL = "store/sql"


@dataclass(frozen=True)
class Mutant:
    """A small fault, and the test that fails with it."""

    name: str
    file: str
    old: str
    new: str
    killer: str
    times: int = 1
    """How often the old text occurs; every occurrence is replaced."""
    seconds: int = 20
    """How long the test may take with the fault; a test that hangs has noticed it, too."""

    @property
    def test(self) -> str:
        """The killer's path for pytest; killers in tests/fault are given without the folder."""
        return self.killer if self.killer.startswith("tests/") else f"tests/fault/{self.killer}"


def changed_text(mutant: Mutant) -> str:
    """The mutant's file with the fault in it."""
    text = (SOURCE / mutant.file).read_text()
    found = text.count(mutant.old)
    if found != mutant.times:
        raise LookupError(
            f"mutant {mutant.name!r}: its text is {found} times in {mutant.file}, not {mutant.times}. "
            f"The code has changed: plant the same fault in what is there now."
        )
    return text.replace(mutant.old, mutant.new)


def planted(mutant: Mutant, folder: Path) -> Path:
    """Copy the product and plant a mutant in the copy; returns the folder to import it from."""
    changed = changed_text(mutant)
    # Copy compiled files, too: only the mutant's own source is newer. But skip the temporary files of concurrent
    # compilations, which may be gone before they are copied.
    shutil.copytree(SOURCE, folder / "stagepost", ignore=shutil.ignore_patterns("*.pyc.*"))
    (folder / "stagepost" / mutant.file).write_text(changed)
    return folder


def on_each(name: str, statement: str, olds: Mapping[str, str], killer: str) -> list[Mutant]:
    """The same fault in a statement of every dialect: the text to remove from each; `killer` ends in `[{}…`."""
    return [
        Mutant(
            f"{name}, on {dialect}",
            f"{SQL}/{dialect}/{statement}.sql",
            old,
            "",
            killer.format("mariadb" if dialect == "mysql" else dialect),
        )
        for dialect, old in olds.items()
    ]
