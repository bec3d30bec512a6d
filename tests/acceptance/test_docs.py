"""The documentation: its code runs, its commands parse, its names and links exist, and it lists all there is."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

import stagepost
from docs.__main__ import pages as generated_pages
from docs.__main__ import refreshed
from docs.sections import commands
from docs.source import fields_of, log_messages
from stagepost import App, JobOptions, RetryPolicy, Settings
from stagepost.cli.main import cli
from stagepost.store.migrate import migrate
from stagepost.store.store import Store
from stagepost.task import TaskOptions
from tests.acceptance.pages import (
    CODE,
    LINK,
    ROOT,
    Block,
    anchors_of,
    blocks,
    blocks_of,
    commands_in,
    pages,
    prose_of,
    text_of,
)
from tests.acceptance.snippets import Console, run_python

DOCS = ROOT / "docs"
TABLES = (
    "create table orders (id integer primary key)",
    "create table payments (order_id integer)",
)
"""What the pages take for the application's own."""
EXAMPLE = re.compile(r"examples/\w+\.py")


def is_run_alone(block: Block) -> bool:
    """Whether it is Python that needs no other part of its page but those it names."""
    return not any(word.startswith(("file ", "examples/")) for word in block.words)


RUNNABLE = [block for block in blocks("python") if is_run_alone(block)]


@pytest.mark.parametrize("block", RUNNABLE, ids=str)
def test_a_snippet_runs(block: Block, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    kind = block.word("on") or "sqlite"
    url = f"sqlite:///{tmp_path}/stagepost.db" if kind == "sqlite" else request.getfixturevalue(f"{kind}_database")
    prepare(url)

    run_python(block, tmp_path, {"DATABASE_URL": url})


def prepare(url: str) -> None:
    store = Store.at(url)
    migrate(store)
    with store.transaction() as connection:
        for statement in TABLES:
            connection.execute(statement, {})
    store.close()


@pytest.mark.parametrize("page", [page for page in pages() if any(b.language == "console" for b in blocks_of(page))])
def test_a_page_with_consoles_can_be_followed_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    console = Console(tmp_path)
    try:
        for block in blocks_of(page):
            if block.mark == "tested":
                console.take(block)
    finally:
        console.close()
