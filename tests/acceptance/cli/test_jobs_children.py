"""`stagepost jobs` and families."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from stagepost.model.children import NewChild
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.model.outcome import Completed
from stagepost.store.children import submit_children
from stagepost.store.leases import claim
from stagepost.store.settlement import Settlement
from stagepost.store.settling import settle
from tests.acceptance.cli.command_line import CommandLine

PROJECT = """
from stagepost import App, JobContext, Permanent

app = App()


@app.task
def page(number: int) -> int:
    if number == 2:
        raise Permanent("no page 2")
    return number


@app.task
def book(job: JobContext, pages: int) -> str:
    for number in range(pages):
        job.submit(page, number)
    return "printed"
"""


@pytest.fixture
def printer(shop_anywhere: CommandLine) -> CommandLine:
    Path(shop_anywhere.folder, "shop.py").write_text(PROJECT, encoding="utf-8")
    return shop_anywhere


def test_a_parent_is_shown_with_its_children_counted(printer: CommandLine) -> None:
    other, book = printer.enqueue("book", "1"), printer.enqueue("book", "4")
    printer.work()

    shown = printer.json("jobs", "show", book)

    assert (shown["state"], shown["error"]) == ("completed_with_errors", "of 4 children 1 failed")
    assert shown["children"] == {"completed": 3, "failed": 1}
    assert '{"completed":3,"failed":1}' in printer.says("jobs", "show", book)
    pages = printer.json("jobs", "list", "--parent", book)["jobs"]
    assert sorted((page["item_key"], page["batch_id"]) for page in pages) == [(str(n), book) for n in range(4)]
    assert printer.json("jobs", "show", pages[0]["id"])["children"] is None
    [failed] = printer.json("jobs", "list", "--parent", book, "--state", "failed")["jobs"]
    assert failed["error"] == "Permanent: no page 2"
    assert len(printer.json("jobs", "list", "--parent", other)["jobs"]) == 1


def test_a_parent_that_is_cancelled_ends_after_its_children(printer: CommandLine) -> None:
    book = printer.enqueue("book", "3")
    store = printer.store
    work_on(printer, book)

    [page] = store.run(claim("default", owner="w", task_names=["shop.page"], slots=1, lease=timedelta(minutes=1)))
    said = printer.says("jobs", "cancel", book)

    assert said == f"Job {book} is being cancelled; it ends when its children have ended.\n"
    assert printer.json("jobs", "show", book)["children"] == {"running": 1, "cancelled": 2}
    assert printer.json("jobs", "show", page.id)["cancel_requested_at"] is not None


def work_on(printer: CommandLine, book: str) -> None:
    """Run the parent, and nothing else."""
    [leased] = printer.store.run(
        claim("default", owner="w", task_names=["shop.book"], slots=1, lease=timedelta(minutes=1))
    )
    assert leased.id == book
    pages = [
        NewChild(NewJob(id=new_id(), task_name="shop.page", payload=f'{{"number":{number}}}'), number=number)
        for number in range(3)
    ]
    printer.store.run(submit_children(leased, pages))
    printer.store.run(settle([Settlement.of(leased, Completed())]))
