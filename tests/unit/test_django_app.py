"""The Django app is there for those who use Django, and for nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


MISTAKEN = """
import sys
import django
from django.conf import settings

INSTALLED = ["stagepost.contrib.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
"""
MISTAKES = {
    "not installed": (
        "settings.configure(INSTALLED_APPS=[], DATABASES=DATABASES)",
        "'stagepost.contrib.django' is not in INSTALLED_APPS. Add it, then run `python manage.py migrate`.",
    ),
    "wrong type": (
        "settings.configure(INSTALLED_APPS=INSTALLED, DATABASES=DATABASES, STAGEPOST={'CONCURRENCY': 'many'})",
        "STAGEPOST: Expected `int`, got `str` - at `$.concurrency`.",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_djangos_settings_is_explained(mistake: str, tmp_path: Path) -> None:
    settings, expected = MISTAKES[mistake]
    program = f"""{MISTAKEN}
{settings}
from stagepost.errors import ConfigurationError
try:
    django.setup()
    from stagepost.contrib.django import app
    app.queues.list()
except ConfigurationError as error:
    print(error)
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_stagepost_needs_django_only_where_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_DJANGO], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("Hello, Ada!\n", "")
