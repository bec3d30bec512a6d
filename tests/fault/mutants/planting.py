"""What a planted fault is, and a copy of the product that has it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "stagepost"
SQL = "store/sql"


@dataclass(frozen=True)
class Mutant:
    """A small change for the worse, and the test that fails with it."""

    name: str
    file: str
    old: str
    new: str
    killer: str
    times: int = 1
    """How often the old text is there; all of them are replaced."""
    seconds: int = 20
    """How long the test may take with it: one that hangs has noticed it, too."""

    @property
    def test(self) -> str:
        """The killer as pytest names it; those of this folder are written without it."""
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
    # With what is compiled: of all files only the mutant's own is newer than that. But not with what others are about
    # to compile, which has another name until then, and may be gone before it is copied.
    shutil.copytree(SOURCE, folder / "stagepost", ignore=shutil.ignore_patterns("*.pyc.*"))
    (folder / "stagepost" / mutant.file).write_text(changed)
    return folder


def on_each(name: str, statement: str, olds: Mapping[str, str], killer: str) -> list[Mutant]:
    """The same fault in a statement of every dialect: the text that is left out of each; `killer` ends in `[{}…`."""
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
