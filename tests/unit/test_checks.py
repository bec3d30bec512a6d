"""Invalid durations, ids, functions and addresses are refused where they are given."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stagepost import App, Retryable, Snooze
from stagepost.database.connection import database_at
from stagepost.errors import LONGEST_DURATION, ConfigurationError, TaskError, duration_of
from stagepost.model.job import LeasedJob
from stagepost.model.options import JobOptions
from stagepost.task import default_name
from stagepost.worker.processes import assignment_of

NO_DURATIONS: list[Any] = [
    timedelta.max,
    timedelta(microseconds=-1),
    float("inf"),
    float("-inf"),
    float("nan"),
    1e300,
    10**400,
    -5,
    True,
    "5s",
    None,
]


@pytest.mark.parametrize("value", NO_DURATIONS, ids=repr)
def test_an_invalid_duration_is_refused_with_the_name_of_its_option(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^the pause is "):
        duration_of(value, "the pause")


@pytest.mark.parametrize("value", [0, 2.5, timedelta(0), LONGEST_DURATION], ids=repr)
def test_seconds_and_timedeltas_are_durations(value: Any) -> None:
    assert duration_of(value, "the pause") == (value if isinstance(value, timedelta) else timedelta(seconds=value))


@pytest.mark.parametrize("value", [value for value in NO_DURATIONS if value is not None], ids=repr)
@pytest.mark.parametrize(
    "use",
    [
        lambda value: JobOptions(delay=value),
        lambda value: JobOptions(unique_key="k", unique_for=value),
        Snooze,
        lambda value: Retryable(after=value),
    ],
    ids=["delay", "unique_for", "Snooze", "Retryable"],
)
def test_every_option_refuses_an_invalid_duration(use: Callable[[Any], object], value: Any) -> None:
    with pytest.raises(ConfigurationError):
        use(value)


def test_ids_that_differ_only_in_case_are_the_same(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/app.db")
    task = app.task(name="task")(lambda: None)
    text = "019a8a56-0f3e-7c44-a7d1-2b9c1d0e5a03"

    ids = {task.using(id=written).enqueue().id for written in (text, text.upper(), text.replace("-", ""))}

    assert ids == {text}
    app.close()


def generate() -> Iterator[int]:
    yield 1


async def generate_async() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [generate, generate_async])
def test_a_generator_function_cannot_be_a_task(function: Callable[..., Any], tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/app.db")

    with pytest.raises(TaskError, match=r"task generator is a generator function, so calling it runs nothing"):
        app.task(name="generator")(function)


def test_a_relative_sqlite_path_is_resolved_when_the_app_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    app = App("sqlite:///app.db")
    monkeypatch.chdir(elsewhere)

    task = app.task(name="task")(lambda: None)
    job = task.enqueue()
    other = app.open_store()
    other.close()

    assert app.client.job(job.id).id == job.id
    assert list(elsewhere.iterdir()) == []
    assert (tmp_path / "app.db").exists()
    app.close()


def test_the_url_may_name_the_required_character_set() -> None:
    database = database_at("mysql://root@localhost/shop?charset=utf8mb4&autocommit=1")

    assert database.options["charset"] == "utf8mb4"  # type: ignore[attr-defined]


@pytest.mark.parametrize("option", ["charset=latin1", "autocommit=0"])
def test_an_option_of_the_url_that_cannot_work_is_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{option} cannot work"):
        database_at(f"mysql://root@localhost/shop?{option}")


@pytest.mark.parametrize("file", ["<stdin>", "<ipython-input-1-5f2c>", "/nowhere/ipykernel_42/1234567890.py"])
def test_a_task_of_a_notebook_or_prompt_has_a_name_that_stays(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def greet(): ...", file, "exec"), names)  # noqa: S102 - as a prompt does

    assert default_name(names["greet"]) == "__main__.greet"


def test_a_process_cannot_run_a_task_of_a_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def cube(number: int) -> int:
        return number**3

    cube.__module__ = "__main__"
    task = App(f"sqlite:///{tmp_path}/jobs.db").task(name="cube", pool="process")(cube)
    job = LeasedJob("job-1", "cube", "default", 1, 0, 0, 5, 0, 0, 0, "{}", None, None, None, "worker")
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))

    with pytest.raises(TaskError, match=r"task cube has pool='process', but is defined in a notebook .* Move it to a"):
        assignment_of(job, task)
