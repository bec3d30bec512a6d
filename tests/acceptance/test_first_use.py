"""The first use of an app in a process."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stagepost import App
from stagepost.errors import ConfigurationError, SchemaError


async def test_async_code_migrates_and_enqueues_without_blocking(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/shop.db", auto_migrate=False)
    greet = app.task(name="greet")(lambda name: name)

    await app.migrate_async()
    jobs = await app.enqueue_many_async([greet.job("Ada"), greet.job("Grace")])

    assert [await job.state_async() for job in jobs] == ["queued", "queued"]
    with pytest.raises(ConfigurationError, match="number 0 is task 'greet': it must be a job"):
        await app.enqueue_many_async([greet])
    await app.close_async()


def test_the_first_enqueue_of_a_process_may_be_in_a_transaction_that_has_written_already(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path}/shop.db", tmp_path / "shop.db"
    made = App(url)
    made.client.jobs()
    made.close()
    app = App(url)
    greet = app.task(name="greet")(lambda name: name)

    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table customer (name text)")
        connection.execute("insert into customer values ('Ada')")  # from here on nobody else can write
        job = greet.using(connection).enqueue("Ada")

    assert app.client.job(job.id).arguments == {"name": "Ada"}
    app.close()


def test_an_app_whose_tables_cannot_be_made_leaves_no_connection_open(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path}/shop.db", tmp_path / "shop.db"
    with closing(App(url)) as app:
        app.migrate()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update stagepost_migration set checksum = 'of another release'")

    with pytest.raises(SchemaError, match="was applied with a different content"):
        App(url).client.jobs()

    assert [file.name for file in tmp_path.iterdir()] == ["shop.db"]  # SQLite removes its log with the last connection
