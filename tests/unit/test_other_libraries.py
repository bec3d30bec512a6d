"""Words of other libraries: each is answered with the line to write."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from stagepost import App, JobContext, JobHandle
from stagepost.errors import ConfigurationError, PayloadError
from stagepost.model import other_libraries
from stagepost.model.job import Enqueued
from stagepost.model.other_libraries import (
    APP_WORDS,
    CONTEXT_WORDS,
    HANDLE_WORDS,
    JOB_OPTION_WORDS,
    REQUEST_WORDS,
    TASK_OPTION_WORDS,
    TASK_WORDS,
    Words,
)

app = App("sqlite://")


@app.task
def greet(name: str) -> str:
    return name


handle: JobHandle[str] = JobHandle(Enqueued("019a0000-0000-7000-8000-000000000000", is_new=True), app)
context = JobContext.__new__(JobContext)
OWNERS: list[tuple[object, Words]] = [
    (app, APP_WORDS),
    (greet, TASK_WORDS),
    (greet.using(delay=5), REQUEST_WORDS),
    (handle, HANDLE_WORDS),
    (context, CONTEXT_WORDS),
]


@pytest.mark.parametrize(("owner", "word"), [(owner, word) for owner, words in OWNERS for word in words])
def test_an_attribute_that_another_library_has_is_answered_with_the_line_to_write(owner: object, word: str) -> None:
    with pytest.raises(AttributeError, match=rf"^{word} is a word of .+\. Write: .+"):
        getattr(owner, word)


def test_the_line_contains_the_name_of_the_task() -> None:
    task: Any = greet
    with pytest.raises(AttributeError) as caught:
        task.apply_async(["Ada"], countdown=5)
    assert str(caught.value) == ("apply_async is a word of Celery. Write: greet.using(delay=…, queue=…).enqueue(…)")
    with pytest.raises(AttributeError, match=r"^configure is a word of Procrastinate\. Write: greet\.using\(…\)\.enq"):
        task.configure(queue="mail")
    with pytest.raises(TypeError, match=r"^signature\(…\) is a word of Celery\. Write: task\.job\(…\)"):
        task.signature(["Ada"])


@pytest.mark.parametrize("owner", [owner for owner, _ in OWNERS[:4]])
def test_any_other_missing_attribute_is_an_ordinary_error(owner: Any) -> None:
    assert not hasattr(owner, "enqeue")
    with pytest.raises(AttributeError, match="has no attribute 'enqeue'"):
        owner.enqeue()


def test_the_error_of_a_property_is_not_hidden() -> None:
    """The context has no attempt, so that its property raises an AttributeError of its own."""
    with pytest.raises(AttributeError, match="'_running'"):
        _ = context.id


def test_handles_can_still_be_copied() -> None:
    copied = copy.copy(handle)
    assert (copied.id, copied.is_new) == (handle.id, True)


@pytest.mark.parametrize("word", TASK_OPTION_WORDS)
def test_a_task_option_that_another_library_has_is_answered_with_the_line_to_write(word: str) -> None:
    options: dict[str, Any] = {word: True}
    with pytest.raises(ConfigurationError, match=rf"^unknown task option {word}\. {word} is a word of .+ Write: .+\.$"):
        app.task(**options)


@pytest.mark.parametrize("word", JOB_OPTION_WORDS)
def test_a_job_option_that_another_library_has_is_answered_with_the_line_to_write(word: str) -> None:
    options: dict[str, Any] = {word: 5}
    with pytest.raises(ConfigurationError, match=rf"^unknown job option {word}\. {word} is a word of .+ Write: .+\.$"):
        greet.using(**options)
    with pytest.raises(PayloadError, match=rf"{word} is a word of .+ Write: .+\.$"):
        greet.enqueue("Ada", **options)


def test_the_words_of_the_issue_are_all_known() -> None:
    known = {name for words in vars(other_libraries).values() if isinstance(words, dict) for name in words}
    assert known >= {
        "s", "si", "retry", "request", "bind", "autoretry_for", "max_retries", "countdown", "eta",
        "acks_late", "send_with_options", "message", "configure", "queueing_lock", "lock", "enqueue_in", "enqueue_at",
        "job_timeout", "result_ttl", "delay", "apply_async", "send", "defer",
    }  # fmt: skip


def test_no_word_is_one_of_ours() -> None:
    for owner, words in OWNERS:
        assert [word for word in words if hasattr(type(owner), word)] == []
