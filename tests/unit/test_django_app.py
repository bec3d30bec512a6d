"""The Django app is there for those who use Django, and for nobody else."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_DJANGO = """
import sys
sys.modules["django"] = sys.modules["asgiref"] = None
import stagepost, stagepost.cli, stagepost.testing
from stagepost.contrib.django import app

@app.task
def greet(name: str) -> str:
    return f"Hello, {name}!"

print(greet("Ada"))
"""


def test_stagepost_needs_django_only_where_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_DJANGO], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("Hello, Ada!\n", "")
