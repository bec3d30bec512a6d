"""The example project, used as its page in the documentation says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "django_project"
BUY = """
from django.test import Client
from orders.models import Book
book = Book.objects.create(title="Walden", stock=1)
shop = Client(headers={"host": "localhost"})
print([shop.post(f"/buy/{book.pk}/", {"email": "ada@example.org"}).status_code for _ in range(2)])
print(shop.post("/report/").json()["result"])
"""
ASK = """
from django.test import Client
print(Client(headers={{"host": "localhost"}}).get("/report/{}/").json())
"""


class Example:
    """A copy of the project in a directory of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("*.sqlite3*", "__pycache__"))
        self._folder, self._environment = folder, {**os.environ, **environment}

    def manage(self, *arguments: str) -> str:
        """Run a command of manage.py from another directory, and return what it prints."""
        done = subprocess.run(
            [sys.executable, "-W", "error", str(self._folder / "manage.py"), *arguments],
            cwd=self._folder.parent,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def use(self) -> None:
        """Migrate, buy, work and look."""
        assert "No changes detected" in self.manage("makemigrations", "--check")
        self.manage("migrate")
        answers, result_id = self.manage("shell", "--no-imports", "-c", BUY).splitlines()[-2:]

        output = self.manage("stagepost", "worker", "--until-idle", "--processes", "1")

        assert answers == "[201, 409]"
        assert "Thank you for buying Walden." in output
        jobs = json.loads(self.manage("stagepost", "jobs", "list", "--json"))["jobs"]
        assert [(job["task"], job["state"]) for job in jobs] == [
            ("orders.tasks.count_orders", "completed"),
            ("orders.tasks.send_receipt", "completed"),
        ]
        assert "{'status': 'SUCCESSFUL', 'orders': 1}" in self.manage(
            "shell", "--no-imports", "-c", ASK.format(result_id)
        )


def test_the_tests_of_the_example_pass(tmp_path: Path) -> None:
    output = Example(tmp_path / "project").manage("test", "orders")

    assert "Ran 4 tests" in output, output
    assert "\nOK" in output, output


def test_the_example_works(tmp_path: Path) -> None:
    Example(tmp_path / "project").use()


@pytest.mark.prove
def test_the_example_works_on_postgresql(tmp_path: Path, postgres_database: str) -> None:
    example = Example(tmp_path / "project", DATABASE_URL=postgres_database)

    example.use()

    assert "\nOK" in example.manage("test", "orders", "--noinput")


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "how-to" / "django.md").read_text(encoding="utf-8")
    shown = re.findall(
        r"part of examples/django_project/(\S+), whose tests run -->\n```python\n(.*?)```", page, re.DOTALL
    )

    assert len(shown) == page.count("```python")
    for file, block in shown:
        assert block in (EXAMPLE / file).read_text(encoding="utf-8"), file
