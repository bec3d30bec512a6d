"""Runs the documentation's code: Python as modules, consoles command by command, and compares the output."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stagepost import App
from tests.acceptance.pages import ROOT, Block, blocks_of

SECONDS = 120.0
"""How long a command that only looks may take to see what it should."""
LOOKING = re.compile(r"^(stagepost \w+ (list|show)|stagepost (health|top)|cat|ls)\b")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
PARTICULARS = (
    (UUID, "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?Z?"), "<time>"),
    (re.compile(r"\bpid \d+ on \S+\)"), "<process>)"),
    (re.compile(r"\bby \S+@\S+"), "by <actor>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|h|d)\b"), "<duration>"),
    (re.compile(r"[ \t]+"), " "),
)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Give programs this environment's commands, and none of this machine's settings."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("STAGEPOST_", "PYTEST_"))}
    programs = os.pathsep.join([str(Path(sys.executable).parent), mine.get("PATH", os.defpath)])
    return (
        mine
        | {"PATH": programs, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "PYTHONUNBUFFERED": "1"}
        | more
    )


def source_of(block: Block) -> str:
    """Put a block behind what it needs and those it continues, and its check behind it."""
    parts = [block.before, block.text, block.then]
    before = block.word("after")
    while before is not None:
        [found] = [other for other in blocks_of(block.page) if other.word("as") == before]
        parts.insert(0, found.text)
        before = found.word("after")
    return "\n".join(parts)


def run_python(block: Block, folder: Path, variables: Mapping[str, str]) -> None:
    """Run a block in this process, or in a separate one if it says `alone`."""
    name = f"{block.page.stem.replace('-', '_').lower()}_{block.line}"
    file = folder / f"{name}.py"
    file.write_text(source_of(block), encoding="utf-8")
    if "alone" in block.words:
        done = subprocess.run(
            [sys.executable, file.name],
            cwd=folder,
            env=environment(folder, **variables),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}:\n{done.stdout}{done.stderr}"
        return
    with _inside(folder, variables):
        try:
            module = importlib.import_module(name)
        finally:
            sys.modules.pop(name, None)
        for app in [value for value in vars(module).values() if isinstance(value, App)]:
            app.close()


@contextlib.contextmanager
def _inside(folder: Path, variables: Mapping[str, str]) -> Iterator[None]:
    before, path, outside = dict(os.environ), list(sys.path), Path.cwd()
    os.environ.update(variables)
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        os.chdir(outside)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(before)


@dataclass
class Console:
    """A reader at a terminal: works through a page's files and consoles from top to bottom."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    """The ids the page shows, and those there are."""
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def take(self, block: Block) -> None:
        """Do what a block says."""
        if (file := block.word("file")) is not None:
            (self.folder / file).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command, shown in _steps(block.text):
                self._type(command, shown, in_background="in the background" in block.words, where=str(block))

    def close(self) -> None:
        """Stop what runs in the background, as Ctrl-C does."""
        for process in self._running:
            process.send_signal(signal.SIGINT)
        for process in self._running:
            assert process.wait(SECONDS) == 0, (self.folder / "background.log").read_text()

    def _type(self, command: str, shown: str, *, in_background: bool, where: str) -> None:
        for written, real in self.ids.items():
            command = command.replace(written, real)
        if setting := re.fullmatch(r"export (\w+)=(\S+)", command):
            self.variables[setting[1]] = setting[2]
            return
        deadline = time.monotonic() + SECONDS
        if in_background:
            self._start(command)
        printed = self._printed(command, in_background=in_background)
        while not matches(shown, printed) and time.monotonic() < deadline and (in_background or LOOKING.match(command)):
            time.sleep(0.05)  # between two looks at what another process does
            printed = self._printed(command, in_background=in_background)
        assert matches(shown, printed), f"{where}: `{command}` printed\n{printed}\nand not\n{shown}"
        self._learn(shown, printed)

    def _start(self, command: str) -> None:
        with (self.folder / "background.log").open("wb") as log:
            self._running.append(
                subprocess.Popen(
                    ["sh", "-c", f"exec {command}"],
                    cwd=self.folder,
                    env=environment(self.folder, **self.variables),
                    stdout=log,
                    stderr=log,
                )
            )

    def _printed(self, command: str, *, in_background: bool) -> str:
        if in_background:
            return (self.folder / "background.log").read_text(encoding="utf-8")
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=environment(self.folder, **self.variables),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def _learn(self, shown: str, printed: str) -> None:
        """Note which id the page calls what, where nothing is left out between them."""
        written, real = list(dict.fromkeys(UUID.findall(shown))), list(dict.fromkeys(UUID.findall(printed)))
        if len(written) == len(real):
            self.ids |= dict(zip(written, real, strict=True))


def matches(shown: str, printed: str) -> bool:
    """Compare without times, ids and widths; `…` stands for anything, alone on a line for any lines."""
    lines = []
    for line in _plain(shown).splitlines():
        anything = ".*".join(re.escape(part) for part in line.split("…"))
        lines.append(r"(?:.*\n)*?" if line == "…" else anything + r"\n")
    return re.fullmatch("".join(lines), "\n".join([*_plain(printed).splitlines(), ""])) is not None


def _plain(text: str) -> str:
    for pattern, blank in PARTICULARS:
        text = pattern.sub(blank, text)
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def _steps(text: str) -> Iterator[tuple[str, str]]:
    """Cut a console into commands and what they show."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown
