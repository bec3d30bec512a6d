"""The runner misses nothing: every test file belongs to a piece, every failure is reported, every stamp is earned."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.runner import pieces, pythons, stamp
from tests.runner.changed import AFFECTED, affected_tests
from tests.runner.piece import ROOT, Failure, Finished, Piece, Run
from tests.runner.report import rows_of, table_of, totals, write_json
from tests.runner.running import run_pieces
from tests.runner.screen import Screen, line_of

SAMPLE = """
import pytest

def test_that_passes(record_property):
    record_property("kills", 3)

def test_that_fails():
    assert 1 == 2, "numbers differ"

@pytest.mark.skip(reason="not here")
def test_that_is_skipped():
    pass
"""


def files_of(arguments: Iterable[str]) -> set[Path]:
    """The test files that pytest takes, from paths and `--ignore`."""
    chosen = {argument.removeprefix("--ignore="): argument.startswith("--ignore=") for argument in arguments}
    wanted = {file for path, ignored in chosen.items() if not ignored for file in _files_at(path)}
    return wanted - {file for path, ignored in chosen.items() if ignored for file in _files_at(path)}


def _files_at(path: str) -> set[Path]:
    place = ROOT / path
    assert place.exists(), f"{path} does not exist"
    return {place} if place.is_file() else set(place.rglob("test_*.py"))


ALL = files_of(["tests"])


def test_every_test_file_belongs_to_one_piece() -> None:
    counts = Counter(file for piece in pieces.TEST for file in files_of(piece.pytest))

    assert counts == dict.fromkeys(ALL, 1)


def test_every_test_file_belongs_to_one_part_of_the_proof() -> None:
    counts = Counter(file for part in pieces.PARTS.values() for paths in part for file in files_of(paths))

    assert counts == dict.fromkeys(ALL, 1)


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.runner.piece.LOGS", tmp_path / "logs")


def run_sample(source: str, tmp_path: Path, *options: str) -> tuple[Run, str]:
    (tmp_path / "test_sample.py").write_text(source)
    screen = io.StringIO()
    arguments = (str(tmp_path), f"--rootdir={tmp_path}", "-p", "no:cacheprovider", *options)
    [run] = run_pieces([Piece("sample", pytest=arguments)], at_once=1, screen=Screen(screen))
    return run, screen.getvalue()


def test_a_run_counts_what_passed_failed_and_was_skipped(tmp_path: Path) -> None:
    run, shown = run_sample(SAMPLE, tmp_path)

    assert [run.count(outcome) for outcome in ("passed", "failed", "skipped")] == [1, 1, 1]
    assert (run.total, run.passed, run.peak_bytes > 0) == (3, False, True)
    [failure] = run.failures
    assert failure.test.endswith("test_that_fails")
    assert "numbers differ" in failure.text
    assert "numbers differ" in shown
    assert totals([run], seconds=1.0).splitlines()[-1] == "1 passed, 1 failed, 1 skipped"


def test_a_process_that_dies_is_a_failure(tmp_path: Path) -> None:
    run, shown = run_sample("import os\n\ndef test_death():\n    os._exit(3)\n", tmp_path)

    assert not run.passed
    assert "exit code 3" in shown


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    run, shown = run_sample("import no_such_module\n", tmp_path)

    assert not run.passed
    assert "no_such_module" in shown


def test_a_piece_without_tests_is_a_failure(tmp_path: Path) -> None:
    run, _ = run_sample(SAMPLE, tmp_path, "-k", "nothing_has_this_name")

    assert not run.passed


def test_no_more_pieces_run_at_once_than_allowed() -> None:
    """Each notes its start and its end; with one at a time, no start comes between the two."""
    piece = "import sys; print('ran')"
    commands = [Piece(f"command-{n}", command=(sys.executable, "-c", piece)) for n in range(3)]

    runs = run_pieces(commands, at_once=1, screen=Screen(io.StringIO()))

    assert all(run.passed for run in runs)
    ends = [run.started + (run.seconds or 0) for run in runs]
    assert all(end <= run.started for end, run in zip(ends, runs[1:], strict=False))


def finished_run() -> Run:
    run = Run(Piece("prove-fault"), total=2, code=0, seconds=4.0)
    run.finished = [
        Finished("tests/fault/test_a.py::test_one", "passed", 1.5, {"kills": 200}),
        Finished("tests/fault/test_a.py::test_two", "passed", 2.5, {"kills": 25}),
    ]
    return run


def test_the_table_of_the_proof_says_what_ran_how_often_and_how_it_ended(tmp_path: Path) -> None:
    rows = rows_of([finished_run()], {"prove-fault": "fault"}, seed="7")

    write_json(tmp_path / "proof.json", rows, commit="abc")

    [row] = json.loads((tmp_path / "proof.json").read_text())["rows"]
    assert row == {
        "part": "fault",
        "what": "tests/fault/test_a.py",
        "tests": 2,
        "iterations": {"kills": 225},
        "seed": "7",
        "result": "passed",
        "seconds": 4.0,
    }
    assert "225 kills" in table_of(rows)


def test_a_piece_that_died_is_in_the_table(tmp_path: Path) -> None:
    run = finished_run()
    run.code, run.failures = 3, [Failure("prove-fault", "exit code 3")]

    rows = rows_of([run], {"prove-fault": "fault"}, seed="7")

    assert [(row.what, row.result) for row in rows][-1] == ("prove-fault", "FAILED")


def test_a_line_says_how_far_a_piece_is() -> None:
    run = finished_run()
    run.total, run.current, run.current_since = 9, "tests/fault/test_a.py::test_three", -1e9

    assert "2/9" in line_of(run)
    assert "test_three" in line_of(run)


@pytest.mark.parametrize(
    ("files", "tests"),
    [
        (["docs/states.md"], ["tests/acceptance/test_docs.py", "tests/acceptance/test_docs_grants.py"]),
        (["tests/unit/test_retry.py"], ["tests/unit/test_retry.py"]),
        (["src/stagepost/cli/main.py", "tests/unit/test_retry.py"], ["tests/acceptance", "tests/unit"]),
        (["src/stagepost/model/job.py"], ["tests"]),
        (["pyproject.toml", "docs/states.md"], ["tests"]),
        (["CHANGELOG.md"], []),
        (["tests/unit/test_that_was_deleted.py"], []),
    ],
)
def test_a_change_affects_the_tests_of_its_layer_and_of_those_above(files: list[str], tests: list[str]) -> None:
    affected = affected_tests(files)

    assert affected == tests or set(tests) < set(affected)


def test_what_the_table_of_affected_tests_names_exists() -> None:
    paths = [*AFFECTED, *(path for paths in AFFECTED.values() for path in paths)]

    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git checkout with one commit, which the stamp takes for the project's."""
    for command in (["init", "-q"], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "x", "--allow-empty"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(stamp, "ROOT", tmp_path)
    monkeypatch.setattr(stamp, "STAMP", tmp_path / ".git" / "tested")
    return tmp_path


def test_a_run_on_a_tree_that_did_not_change_is_recorded(checkout: Path) -> None:
    tree = stamp.Tree.now()
    assert tree is not None

    stamp.write_stamp(tree, seconds=10, tests=3)

    assert stamp.read_stamp().startswith(f"{tree.commit} clean, ")


def test_uncommitted_changes_are_recorded_as_such(checkout: Path) -> None:
    (checkout / "new.py").write_text("")
    tree = stamp.Tree.now()
    assert tree is not None

    stamp.write_stamp(tree, seconds=10, tests=3)

    assert stamp.read_stamp().startswith(f"{tree.commit} with uncommitted changes, ")


def test_a_tree_that_changed_during_the_run_is_not_recorded(checkout: Path) -> None:
    tree = stamp.Tree.now()
    (checkout / "new.py").write_text("")

    said = stamp.write_stamp(tree, seconds=10, tests=3)

    assert "changed during the run" in said
    assert "No run" in stamp.read_stamp()


def test_files_that_changed_since_a_commit_are_found(checkout: Path) -> None:
    (checkout / "new.py").write_text("")

    assert stamp.changed_files("HEAD") == ["new.py"]


def test_this_interpreter_is_among_those_that_are_found() -> None:
    found = pythons.interpreters()

    assert f"3.{sys.version_info.minor}" in found
    assert all(int(version.partition(".")[2]) >= pythons.OLDEST for version in found)
