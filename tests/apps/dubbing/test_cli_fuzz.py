"""Whatever is typed after `stagepost-dubbing`, what is printed is a message, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagepost_dubbing import Dubbing
from stagepost_dubbing.cli.main import cli
from tests.apps.dubbing.conftest import quick_variables
from tests.apps.dubbing.stand_ins import Control
from tests.apps.dubbing.workers import dubbed

CODES = {0, 1, 2}
"""Done, it failed, wrong usage: with a database that works, nothing else can be."""
COMMANDS = {
    "dub": (1, ["--to", "--from", "--id", "--speaker", "--keep-original", "--duck", "--json"]),
    "status": (1, ["--json"]),
    "segments": (1, ["--json"]),
    "list": (0, ["--status", "--limit", "--json"]),
    "edit": (2, ["--text", "--json"]),
    "retry": (1, ["--json"]),
    "cancel": (1, ["--json"]),
    "save": (2, ["--json"]),
    "tts-requeue": (0, ["--limit", "--json"]),
    "watch": (1, ["--json"]),
    "migrate": (0, []),
}
"""How many arguments a command takes, and its options."""
FLAGS = {"--json", "--keep-original"}
NEEDED = {"dub": ["--to"], "edit": ["--text"]}
ADDED = {"dub": ["--detach"], "watch": ["--timeout", "0"]}
"""So that nothing waits for a worker."""


class Place:
    """A directory with a finished task, a video, and files that are none."""

    def __init__(self, directory: Path, task_id: str) -> None:
        self.directory, self.task_id = directory, task_id

    def words(self) -> st.SearchStrategy[str]:
        """What arguments are made of: things that exist, numbers at their limits, and anything."""
        names = ["small.mp4", "text.mp4", "empty.mp4", "folder", ".", "", "-", "no/such/file", "../x", "small.mp4/x"]
        numbers = ["0", "-1", "1", "4", "5", "1e400", "nan", "-inf", "-18", str(2**31), str(2**63), str(10**40)]
        others = ["pt", "en", "xx", "pt-BR", "done", "default", self.task_id, self.task_id.upper(), "{" + self.task_id]
        anything = st.text(st.characters(codec=None, exclude_characters="\0"), max_size=20)
        others.append("long " * 3000)
        # No path from the root: `save` would write there.
        return st.one_of(st.sampled_from([*names, *numbers, *others]), anything).filter(lambda word: word[:1] != "/")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, small_video: Path) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("typed")
    for name in ("control", "folder"):
        (directory / name).mkdir()
    (directory / "small.mp4").write_bytes(small_video.read_bytes())
    (directory / "text.mp4").write_text("no video")
    (directory / "empty.mp4").touch()
    (directory / "name\udcff.mp4").write_bytes(small_video.read_bytes())
    variables = quick_variables(directory, Control(directory / "control"))
    with Dubbing(environment=variables) as dubbing:
        task = dubbed(dubbing, directory / "small.mp4")
    patched = pytest.MonkeyPatch()
    for name, value in variables.items():
        patched.setenv(name, value)
    patched.chdir(directory)
    try:
        yield Place(directory, task.id)
    finally:
        patched.undo()


def check(arguments: list[str]) -> None:
    """Type it, and demand a message."""
    done = CliRunner().invoke(cli, arguments)
    shown = f"{arguments}: {done.output}"
    assert done.exception is None or isinstance(done.exception, SystemExit), (shown, done.exception)
    assert done.exit_code in CODES, shown
    assert "Traceback" not in done.output, shown
    if done.exit_code:
        assert done.output.strip(), shown


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_arguments_end_in_a_traceback(place: Place, data: st.DataObject) -> None:
    words = place.words()
    command = data.draw(st.sampled_from(sorted(COMMANDS)))
    number, options = COMMANDS[command]
    arguments = [command, *data.draw(st.lists(words, min_size=number, max_size=number))]
    for option in [
        *NEEDED.get(command, []),
        *data.draw(st.lists(st.sampled_from([*options, "--no-such"]), max_size=3)),
    ]:
        arguments += [option] if option in FLAGS else [option, data.draw(words)]
    if data.draw(st.integers(0, 9)) == 0:
        arguments.remove(data.draw(st.sampled_from(arguments)))
    check(arguments + ADDED.get(command, []))


@pytest.mark.parametrize(
    "arguments",
    [
        ["dub", "small.mp4", "--to", "pt", "--duck", "nan"],
        ["dub", "small.mp4", "--to", "pt", "--speaker", "\udcff"],
        ["dub", "name\udcff.mp4", "--to", "pt", "--detach"],
        ["save", "TASK", "folder"],
        ["save", "TASK", "no/such/folder.mp4"],
        ["save", "TASK", "small.mp4/x.mp4"],
        ["edit", "TASK", "0", "--text", "\udcff"],
        ["edit", "TASK", str(10**40), "--text", "x"],
        ["list", "--limit", str(2**63)],
        ["tts-requeue", "--limit", str(10**40)],
        ["watch", "TASK", "--timeout", "nan"],
    ],
    ids=lambda arguments: " ".join(arguments).encode("ascii", "backslashreplace").decode()[:60],
)
def test_arguments_that_look_dangerous(place: Place, arguments: list[str]) -> None:
    check([place.task_id if argument == "TASK" else argument for argument in arguments])
