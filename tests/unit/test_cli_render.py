"""How commands format numbers, times and tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagepost.cli.layout import Section, duration_text, printable, table_lines, time_text
from stagepost.cli.render import LineBar
from stagepost.cli.watch import SourceWatch, python_files_below


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 ms"), (-5, "0 ms"), (999_000, "999 ms"), (1_000_000, "1 s"), (119_000_000, "119 s"),
        (120_000_000, "2 min"), (7_199_000_000, "119 min"), (7_200_000_000, "2 h"), (200_000_000_000, "2 d"),
    ],
)  # fmt: skip
def test_durations_have_one_unit(microseconds: int, text: str) -> None:
    assert duration_text(microseconds) == text


def test_times_are_utc() -> None:
    assert time_text(1_767_225_600_000_000) == "2026-01-01 00:00:00Z"
    assert time_text(None) is None


def test_a_table_is_set_in_columns_with_numbers_flush_right() -> None:
    section = Section(("name", "jobs"), [("mail", 1200), ("a\nb", None)], numbers=frozenset({"jobs"}))

    assert table_lines(section) == ["name   jobs", "mail  1,200", "a b       -"]


@pytest.mark.parametrize("text", ["\x1b[2J", "\r", "\x07", "\u202e", "\x9b"])
def test_control_characters_are_escaped(text: str) -> None:
    shown = printable(f"a{text}b")

    assert shown.startswith("a\\x")
    assert shown.isprintable()


def test_lines_of_progress_come_at_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    bar = LineBar("Counting", 50)

    for done in range(51):
        bar.move_to(done)

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == "Counting: 5 of 50 (10 %)"


def test_only_watched_files_that_changed_since_they_were_noted_are_reported(tmp_path: Path) -> None:
    watched, other = tmp_path / "watched.py", tmp_path / "other.py"
    for file in (watched, other):
        file.write_text("1", encoding="utf-8")
    watch = SourceWatch()
    watch.note(python_files_below(tmp_path))
    _touch(watched, other)  # after it was noted, before it is watched

    watch.watch([watched])

    assert watch.changed() == [watched]
    assert watch.changed() == []
    watched.unlink()
    assert watch.changed() == [watched]


def test_hidden_folders_and_installed_packages_are_not_a_projects_files(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", ".venv/c.py", "x/site-packages/d.py", "e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert [str(file.relative_to(tmp_path)) for file in python_files_below(tmp_path)] == ["a.py", "sub/b.py"]


def _touch(*files: Path) -> None:
    import os

    for file in files:
        os.utime(file, ns=(0, 1))
