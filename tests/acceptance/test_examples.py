"""Every example runs, and prints what its docstring says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    path for path in (ROOT / "examples").rglob("*.py") if "It prints:" in path.read_text(encoding="utf-8")
)


def promised_output(path: Path) -> str:
    """What the docstring says the example prints."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return textwrap.dedent(docstring.partition("It prints:\n\n")[2]).strip()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=str(path.relative_to(ROOT / "examples")),
            marks=() if path.name == "quickstart.py" else pytest.mark.prove,
        )
        for path in EXAMPLES
    ],
)
def test_an_example_prints_what_its_docstring_says(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == promised_output(path)


def test_every_program_among_the_examples_is_run() -> None:
    servers = {"fastapi_app.py", "flask_app.py"}  # see test_served_examples.py
    # The Django project has tests of its own, which tests/acceptance/django runs.
    found = (path for path in (ROOT / "examples").rglob("*.py") if "django_project" not in path.parts)
    programs = {path.name for path in found} - servers

    assert programs == {path.name for path in EXAMPLES}


def test_the_readme_shows_the_quickstart_as_it_is() -> None:
    source = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    shown = re.search(
        r"<!-- tested: examples/quickstart\.py -->\n```python\n(.*?)```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )

    assert shown is not None
    assert source.partition('"""\n\n')[2] == shown[1]
    assert len([line for line in shown[1].splitlines() if line.strip()]) <= 12
