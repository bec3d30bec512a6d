"""The documentation: its code runs, its commands parse, its names and links exist, and its lists are complete."""

from __future__ import annotations

import ast
import configparser
import json
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

import stagepost
from docs.__main__ import pages as generated_pages
from docs.__main__ import refreshed
from docs.sections import commands
from docs.source import fields_of, log_messages
from stagepost import JobOptions, PayloadLimits, RateLimit, RetryPolicy, Settings, errors
from stagepost.cli.main import cli
from stagepost.config.rabbitmq import BrokerQueueSettings, RabbitmqSettings
from stagepost.database.migrate import migrate
from stagepost.database.store import Store
from stagepost.model.envelope import decode_answer, decode_envelope
from stagepost.model.options import TaskOptions
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

TABLES = ("create table orders (id integer primary key)", "create table payments (order_id integer)")
"""What the pages take for the application's own."""
JOB_ID = "019a8a56-0f3e-7c44-a7d1-2b9c1d0e5a03"
PLACES = ("", "src/stagepost", "src/stagepost/store/sql/*", "docs", "docs/how-to", "tests")
"""Where a file that a page names may be."""
FILE = re.compile(r"[\w./-]+\.(?:py|sql|md|toml|txt)")
DEFINED_IN = re.compile(r"`(\w+)`\s+\(`([\w./]+\.py)`\)")
TEST_NAME = re.compile(r"(?:([\w/]+\.py)::)?(test_\w+)")


def is_run_alone(block: Block) -> bool:
    """Whether it is Python that needs no other part of its page but those it names."""
    return not any(word.startswith(("file ", "examples/")) for word in block.words)


@pytest.mark.parametrize("block", [block for block in blocks("python") if is_run_alone(block)], ids=str)
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


CONSOLES = [page for page in pages() if any(b.language == "console" and b.mark == "tested" for b in blocks_of(page))]


@pytest.mark.parametrize("page", CONSOLES, ids=lambda page: page.name)
@pytest.mark.prove
def test_a_page_with_consoles_can_be_followed_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    console = Console(tmp_path)
    try:
        for block in blocks_of(page):
            if block.mark == "tested":
                console.take(block)
    finally:
        console.close()


def test_every_block_of_python_is_run_or_says_why_not() -> None:
    assert [str(block) for block in blocks("python", mark=None)] == []


@pytest.mark.parametrize("block", blocks("python", mark="not run"), ids=str)
def test_a_block_that_is_not_run_is_python_all_the_same(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)  # as in a notebook


EXAMPLES = [
    (block, word)
    for language in ("python", "c", "javascript")
    for block in blocks(language)
    for word in block.words
    if word.startswith("examples/")
]


@pytest.mark.parametrize(("block", "example"), EXAMPLES, ids=str)
def test_a_block_from_an_example_is_what_the_example_says(block: Block, example: str) -> None:
    assert block.text.strip() in (ROOT / example).read_text(encoding="utf-8")


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_a_message_on_a_page_is_valid(block: Block) -> None:
    decode = {"request": decode_envelope, "answer": decode_answer}[block.words[0]]
    shown = json.loads(block.text)

    assert json.loads(msgspec.json.encode(decode(block.text.encode()))).items() >= shown.items()


@pytest.mark.parametrize("page", generated_pages(), ids=lambda page: page.name)
def test_generated_docs_are_up_to_date(page: Path) -> None:
    assert text_of(page) == refreshed(page), "run ./dev docs"


@cache
def written_commands() -> list[tuple[str, str]]:
    """List every `stagepost …` that a page tells people to type, with where that is."""
    found = []
    for page in pages():
        for block in blocks_of(page):
            found += [(str(block), command) for command in commands_in(block) if command.startswith("stagepost ")]
            found += [(str(block), text) for text in re.findall(r"/bin/(stagepost [^\n]+)", block.text)]
            arrays = re.findall(r"command: \[(stagepost[^\]]*)\]", block.text)
            found += [(str(block), array.replace(",", "")) for array in arrays]
        inline = [text for text in CODE.findall(prose_of(page)) if text.startswith("stagepost ")]
        found += [(str(page.relative_to(ROOT)), text) for text in inline if "…" not in text]
    return found


def test_every_command_on_the_pages_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    refused = {f"{where}: {command}": trouble for where, command in written_commands() if (trouble := refusal(command))}

    assert refused == {}
    assert len(written_commands()) > 50


def refusal(command: str) -> str | None:
    """Say why a command line cannot be parsed, or None; nothing is run."""
    filled = re.sub(r"\[?\b(?:(?:JOB|RUN)_)?ID\b\]?(\.\.\.)?", JOB_ID, command)
    words = shlex.split(re.split(r"\s[>|]\s", filled)[0], comments=True)[1:]
    try:
        group: click.Command = cli
        context = cli.make_context("stagepost", words)
        while isinstance(group, click.Group) and context._protected_args:
            name, found, rest = group.resolve_command(context, [*context._protected_args, *context.args])
            assert found is not None
            group, context = found, found.make_context(name, rest, parent=context)
    except click.exceptions.NoArgsIsHelpError:
        return None  # a group of commands, named as such
    except click.MissingParameter as error:
        is_named_only = not words[2:] and isinstance(error.param, click.Argument)
        return None if is_named_only else error.format_message()
    except click.ClickException as error:
        return error.format_message()
    return None


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(prose_of(page)):
        if target.startswith(("https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_file_named_on_a_page_exists(page: Path) -> None:
    own = {block.word("file") for block in blocks_of(page)} | set(
        re.findall(r"[\w.]+\.(?:sql|toml|py)", examples(page))
    )
    named = {text for text in CODE.findall(prose_of(page)) if FILE.fullmatch(text)} - own

    assert [
        name for name in sorted(named) if not any(list(ROOT.glob(f"{place}/{name}".lstrip("/"))) for place in PLACES)
    ] == []


def examples(page: Path) -> str:
    """Give what stands in a page's code blocks: files that a reader is told to make."""
    return "\n".join(block.text for block in blocks_of(page))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_name_is_defined_in_the_file_beside_it(page: Path) -> None:
    missing = []
    for name, file in DEFINED_IN.findall(text_of(page)):
        [path] = [place for place in (ROOT / "src/stagepost" / file, ROOT / file) if place.exists()]
        if not re.search(rf"^\s*(?:(?:async )?def|class) {name}\b|^{name}\b.* =", path.read_text(), flags=re.MULTILINE):
            missing.append(f"{name} in {file}")

    assert missing == []


@cache
def known_tests() -> dict[str, set[str]]:
    """List every test there is, with the files that have one of that name."""
    found: dict[str, set[str]] = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), flags=re.MULTILINE):
            found.setdefault(name, set()).add(file.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_test_named_on_a_page_exists(page: Path) -> None:
    missing = []
    for text in CODE.findall(prose_of(page)):
        if (named := TEST_NAME.fullmatch(text)) is not None:
            files = known_tests().get(named[2], set())
            if not files or (named[1] and named[1] not in files):
                missing.append(text)

    assert missing == []


def test_every_fault_that_tests_name_is_in_the_table() -> None:
    rows = set(re.findall(r"^\| (F\d+) \|", text_of(ROOT / "docs/guarantees.md"), flags=re.MULTILINE))

    assert faults_named_in_tests() - rows == set(), "add these to the table in docs/guarantees.md"


def faults_named_in_tests() -> set[str]:
    """Read the numbers in docstrings such as "F1 to F4: …" and "F8." of the fault tests."""
    found = set()
    for file in (ROOT / "tests" / "fault").glob("test_*.py"):
        for text in re.findall(r'"""(?:[^"]*\()?(F\d+[^:."\)]*)[:.)]', file.read_text(encoding="utf-8")):
            for first, _, last in re.findall(r"F(\d+)( to F(\d+))?", text):
                found |= {f"F{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def in_code_type(page: str) -> set[str]:
    return set(CODE.findall(text_of(ROOT / page)))


@pytest.mark.parametrize(
    "cls",
    [Settings, RabbitmqSettings, BrokerQueueSettings, TaskOptions, JobOptions, RetryPolicy, RateLimit, PayloadLimits],
)
def test_every_option_is_in_the_reference(cls: type) -> None:
    assert {field.name for field in fields_of(cls)} - in_code_type("docs/reference.md") == set()


def test_every_public_name_is_in_the_reference() -> None:
    words = set(re.findall(r"\w+", text_of(ROOT / "docs/reference.md")))

    assert set(stagepost.__all__) - words == set()
    assert set(errors.__all__) - in_code_type("docs/reference.md") == set()


def test_every_command_is_in_the_reference() -> None:
    text = text_of(ROOT / "docs/reference.md")

    assert [name for name, _ in commands() if f"`stagepost {name}" not in text] == []


def test_every_log_message_is_explained() -> None:
    page = text_of(ROOT / "docs/how-to/dead-letters.md")
    explained = set(re.findall(r"^\| `([^`]*)` \| ", page[page.index("## What log messages mean") :], re.MULTILINE))
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py")]
    logged = {message for source in sources for message in log_messages(source)}
    with_words = {message for message in logged if re.search(r"[a-z]{4}", message)}

    assert with_words - explained == set(), "explain these in docs/how-to/dead-letters.md"
    assert explained - with_words == set(), "these are logged no more"


@pytest.mark.parametrize("block", blocks("toml", mark=None), ids=str)
def test_a_settings_file_can_be_loaded(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "stagepost.toml"
    file.write_text(block.text, encoding="utf-8")

    loaded = msgspec.to_builtins(Settings.load(file, environment={}))

    assert with_given(loaded, tomllib.loads(block.text)) == loaded


def with_given(loaded: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Put what a file gives over what was loaded, section by section."""
    return loaded | {
        name: with_given(loaded.get(name, {}), value) if isinstance(value, dict) else value
        for name, value in given.items()
    }


@pytest.mark.parametrize("block", blocks("ini", mark=None), ids=str)
def test_a_service_gives_its_worker_time_to_stop(block: Block) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block.text)

    assert unit.getint("Service", "TimeoutStopSec") > Settings().shutdown_timeout_seconds + 15
