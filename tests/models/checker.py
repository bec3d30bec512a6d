"""Runs Spin: translates a model to C, compiles it, and searches every state for one that violates a property."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).resolve().parents[2] / "models"
DEEPEST = 10_000
SECONDS = 600
"""A deadline, not an expectation."""

STATE = "assertion violated"
"""A safety property is broken: there is a state in which it does not hold."""
CYCLE = "acceptance cycle"
"""A liveness property is broken: what should happen can stay out for ever."""


@dataclass(frozen=True)
class Verdict:
    """How the property is broken, None if it holds, and the run that breaks it, step by step."""

    broken: str | None
    run: str


def check(model: str, ltl: str, definitions: tuple[str, ...], folder: Path, *, large: bool = False) -> Verdict:
    """Search the model, built with `-D` for each definition, for a run that breaks the property.

    `large` takes longer to compile and less memory and time to search.
    """
    shutil.copy(MODELS / model, folder)  # Spin writes beside it
    spin = ["spin", *(f"-D{definition}" for definition in definitions)]
    _run(folder, *spin, "-a", model)
    options = ["-O2", "-DCOLLAPSE"] if large else ["-O0"]  # COLLAPSE packs states and loses none
    _run(folder, "gcc", "-w", *options, "-o", "pan", "pan.c")
    cycles = ["-a"] if _is_liveness(model, ltl) else []
    said = _run(folder, "./pan", *cycles, f"-m{DEEPEST}", "-N", ltl)
    if found := re.search(rf"^pan:1: ({STATE}|{CYCLE}|.*)", said, flags=re.MULTILINE):
        return Verdict(found[1], _run(folder, *spin, "-t", "-p", "-g", "-l", model))
    if "errors: 0" not in said or "max search depth" in said or "not completed" in said:
        raise RuntimeError(f"the search of {model} for {ltl} was not finished:\n{said}")
    return Verdict(None, "")


def definitions_in(model: str) -> set[str]:
    """Name what the model asks about with `#ifdef`, and so all its variants."""
    text = (MODELS / model).read_text(encoding="utf-8")
    return set(re.findall(r"#ifn?def (\w+)", text)) | set(re.findall(r"defined\((\w+)\)", text))


def _is_liveness(model: str, ltl: str) -> bool:
    [operator] = re.findall(rf"^ltl {ltl} {{ (<>|\[\])", (MODELS / model).read_text("utf-8"), flags=re.MULTILINE)
    return bool(operator == "<>")


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr
