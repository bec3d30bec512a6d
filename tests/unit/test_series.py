"""A series of jobs is built as it is read, and refuses invalid arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pytest

from stagepost.errors import ConfigurationError, PayloadError
from stagepost.model.identity import NO_ID
from stagepost.model.job import NewJob
from stagepost.model.options import JobOptions, TaskOptions
from stagepost.model.series import JobSeries
from stagepost.task import Task

PATTERN = NewJob(id=NO_ID, task_name="square", payload="")


def square(number: int) -> int:
    return number**2


def of_square(**options: Any) -> Task[..., Any]:
    return Task(square, name="square", options=TaskOptions(**options), wants_context=False)


def test_arguments_are_encoded_when_they_are_read_and_not_before() -> None:
    encoded: list[Any] = []

    def encode(args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> str:
        encoded.extend(args)
        return str(args)

    series = JobSeries(PATTERN, [(number,) for number in range(5)], encode)
    assert encoded == []

    read = list(islice(series.plain(), 2))

    assert encoded == [0, 1]
    assert read == [(PATTERN, series.ids[0], "(0,)"), (PATTERN, series.ids[1], "(1,)")]


def test_later_changes_of_the_list_make_no_difference() -> None:
    numbers = [(1,), (2,)]
    series = JobSeries(PATTERN, numbers, lambda args, _: str(args))

    numbers[0] = (3,)
    numbers.append((4,))

    assert [job.payload for job in series] == ["(1,)", "(2,)"]
    assert [job.id for job in series] == series.ids


def test_a_generator_is_refused_before_it_is_read() -> None:
    was_read = False

    def numbers() -> Iterator[tuple[int]]:
        nonlocal was_read
        was_read = True
        yield (1,)

    with pytest.raises(ConfigurationError, match=r"come from a generator, whose code .*`list\(\.\.\.\)`"):
        of_square().build_many(JobOptions(), numbers())  # type: ignore[arg-type]
    assert not was_read


def test_many_jobs_cannot_have_one_id() -> None:
    with pytest.raises(ConfigurationError, match="can identify only one job"):
        of_square().build_many(JobOptions(id="00000000-0000-7000-8000-000000000001"), [(1,), (2,)])


def test_the_limit_key_is_computed_after_the_arguments_are_checked() -> None:
    task = of_square(max_running=1, limit_by=lambda number: str(number % 2))

    with pytest.raises(PayloadError, match=r"arguments\[1\]: .*argument `number` must be int, not str"):
        task.build_many(JobOptions(), [(1,), ("2",)])
    assert [job.limit_key for job in task.build_many(JobOptions(), [(1,), (2,)])] == ["square:1", "square:0"]
