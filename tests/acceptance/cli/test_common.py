"""What all commands have in common: options, settings, errors and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from stagepost.cli.main import cli
from stagepost.database import Store
from stagepost.database.migrate import migrate
from tests.acceptance.cli.command_line import CommandLine


def commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    """All commands there are, as they are typed."""
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        found += commands(command, *path, name) if isinstance(command, click.Group) else [(*path, name)]
    return found


@pytest.mark.parametrize("path", commands(cli), ids=" ".join)
def test_every_command_explains_itself_and_takes_the_common_options(shop: CommandLine, path: tuple[str, ...]) -> None:
    text = shop.says(*path, "--help")

    for option in ("--app", "--database", "--config", "--json", "--debug"):
        assert option in text


def test_help_lists_no_arguments_among_the_options(shop: CommandLine) -> None:
    _, _, options = shop.says("enqueue", "--help").partition("Options:\n")

    assert options.lstrip().startswith("--delay")


def test_the_first_page_of_help_names_the_exit_codes(shop: CommandLine) -> None:
    text = shop.says("--help")

    assert "3 the database or the broker cannot be reached" in text
    assert text.index("worker ") < text.index("jobs ") < text.index("demo ")


def test_common_options_may_stand_before_or_after_the_command(shop: CommandLine) -> None:
    before = json.loads(shop.says("--json", "jobs", "list"))
    after = json.loads(shop.says("jobs", "list", "--json"))

    assert before == after == {"jobs": [], "next_before": None}


BROKEN = {
    "no_such_package": ("import no_such_package_of_anyone", "No module named 'no_such_package_of_anyone'"),
    "divides": ("x = 1\ny = x / 0", "divides.py, line 2"),
    "syntax": ("def f(:", "syntax.py, line 1"),
    "empty": ("", "create one, such as"),
    "two": ("from stagepost import App\na = App()\nb = App()", "two:a, two:b"),
}


@pytest.mark.parametrize("module", BROKEN)
def test_an_app_that_cannot_be_loaded_is_explained(shop: CommandLine, module: str) -> None:
    source, expected = BROKEN[module]
    (shop.folder / f"{module}.py").write_text(source, encoding="utf-8")

    message = shop.fails(2, "worker", "--app", module)

    assert expected in message


@pytest.mark.parametrize(
    ("app", "expected"),
    [
        ("nowhere", "there is no module 'nowhere' in"),
        ("tasks.py:app", "Write the name of the module, not of the file: tasks."),
        ("shop:nothing", "shop:nothing does not exist. Its apps are: shop:app."),
        ("shop:mail", "shop:mail is not a Stagepost App"),
        ("shop app", "this is not a module name"),
    ],
)
def test_a_missing_app_is_explained(shop: CommandLine, app: str, expected: str) -> None:
    assert expected in shop.fails(2, "worker", "--app", app)


def test_a_command_that_needs_an_app_says_how_to_name_it(shop: CommandLine) -> None:
    assert "--app module:attribute or in STAGEPOST_APP" in shop.fails(2, "enqueue", "mail", STAGEPOST_APP=None)


def test_a_database_that_cannot_be_reached_is_exit_code_3(shop: CommandLine) -> None:
    message = shop.fails(3, "jobs", "list", "--database", "postgresql://me:secret@127.0.0.1:1/x")

    assert "cannot be reached" in message
    assert "secret" not in message
    assert len(message.splitlines()) == 1


def test_a_missing_sqlite_file_is_not_created(shop: CommandLine) -> None:
    message = shop.fails(3, "jobs", "list", "--database", "sqlite:///other.db")

    assert re.search(r"There is no SQLite file \S+/other\.db\. Name the database to use", message)
    assert not (shop.folder / "other.db").exists()


def test_missing_tables_are_exit_code_4(shop: CommandLine) -> None:
    (shop.folder / "empty.db").touch()

    assert "Run `stagepost migrate`" in shop.fails(4, "jobs", "list", "--database", "sqlite:///empty.db")


def test_a_database_with_missing_tables_is_not_left_open(shop: CommandLine) -> None:
    (shop.folder / "empty.db").touch()

    result = shop.run("jobs", "list", "--database", "sqlite:///empty.db")

    assert result.exit_code == 4
    assert not list(shop.folder.glob("empty.db-*"))  # SQLite removes its log when the last connection is closed


def test_an_unknown_kind_of_database_is_exit_code_2(shop: CommandLine) -> None:
    assert "begins with 'oracle': use sqlite:///file.db, postgresql://… or mysql://…" in shop.fails(
        2, "jobs", "list", "--database", "oracle://here"
    )


def test_debug_shows_the_traceback(shop: CommandLine) -> None:
    result = shop.run("jobs", "list", "--database", "oracle://here", "--debug")

    assert result.exit_code == 1
    assert result.exc_info is not None
    assert type(result.exception).__name__ == "ConfigurationError"


def test_commands_that_only_need_the_database_work_without_an_app(shop: CommandLine) -> None:
    for command in (("jobs", "list"), ("dead", "list"), ("queues", "list"), ("schedules", "list"), ("workers", "list")):
        assert shop.run(*command, STAGEPOST_APP=None).exit_code == 0


def test_the_database_may_be_named_in_a_file_that_a_variable_names(shop: CommandLine) -> None:
    secret = shop.folder / "secret"
    secret.write_text(f"{shop.url}\n", encoding="utf-8")
    nothing = {"STAGEPOST_DATABASE_URL": None, "STAGEPOST_APP": None}

    assert shop.run("jobs", "list", **nothing, STAGEPOST_DATABASE_URL_FILE=str(secret)).exit_code == 0
    message = shop.fails(2, "jobs", "list", **nothing, STAGEPOST_DATABASE_URL_FILE="nowhere")
    assert "STAGEPOST_DATABASE_URL_FILE" in message


def test_a_settings_file_counts_for_the_app_and_without_one(shop: CommandLine, tmp_path: Path) -> None:
    store = Store.at(f"sqlite:///{tmp_path}/other.db")
    migrate(store)
    store.close()
    config = tmp_path / "stagepost.toml"
    config.write_text(f'[stagepost]\ndatabase_url = "sqlite:///{tmp_path}/other.db"\n', encoding="utf-8")
    without_url = {"STAGEPOST_DATABASE_URL": None}

    enqueued = shop.run("enqueue", "mail", '"ada"', "--config", str(config), **without_url)
    listed = shop.run("jobs", "list", "--json", "--config", str(config), **without_url, STAGEPOST_APP=None)

    assert enqueued.exit_code == 0
    assert len(json.loads(listed.stdout)["jobs"]) == 1
    assert shop.json("jobs", "list")["jobs"] == []


def test_the_database_of_the_command_line_beats_the_apps(shop: CommandLine, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    shop.says("migrate", "--database", other)

    shop.says("enqueue", "mail", '"ada"', "--database", other)

    assert shop.json("jobs", "list")["jobs"] == []
    assert len(shop.json("jobs", "list", "--database", other)["jobs"]) == 1


@pytest.mark.parametrize("has_rich", [True, False])
def test_tables_are_shown_on_a_terminal_with_and_without_rich(
    shop: CommandLine, monkeypatch: pytest.MonkeyPatch, *, has_rich: bool
) -> None:
    monkeypatch.setattr("stagepost.cli.render._is_terminal", lambda **_: True)
    monkeypatch.setattr("stagepost.cli.render._has_rich", lambda: has_rich)
    monkeypatch.setenv("COLUMNS", "200")
    job_id = shop.enqueue("mail", '"ada"', "--queue", "x:red")

    shown = shop.says("jobs", "list")
    once = shop.says("top", "--once")

    assert job_id in shown
    assert "x:red" in shown
    assert "1 live jobs" in once
    assert "No worker is running." in once


@pytest.mark.parametrize("has_rich", [True, False])
def test_long_work_shows_a_bar_on_a_terminal_with_and_without_rich(
    shop: CommandLine, monkeypatch: pytest.MonkeyPatch, *, has_rich: bool
) -> None:
    monkeypatch.setattr("stagepost.cli.render._is_terminal", lambda **_: True)
    monkeypatch.setattr("stagepost.cli.render._has_rich", lambda: has_rich)

    result = shop.run("bench", "--jobs", "20")

    assert result.exit_code == 0, result.output
    assert "Draining" in result.stderr


def test_text_from_the_database_cannot_control_the_terminal(shop: CommandLine) -> None:
    shop.enqueue("mail", '"\\u001b[2Jada"')

    [row] = shop.says("jobs", "list").splitlines()[1:]
    shown = shop.says("jobs", "show", row.split()[0])

    assert "\x1b" not in shown
    assert "\\u001b" in shown or "\\x1b" in shown
