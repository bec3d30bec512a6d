"""Log records as JSON lines, and the ids that the filter adds to them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from stagepost import configure_logging, traced
from stagepost.config.logging import (
    ATTEMPTS,
    JobContextFilter,
    JsonFormatter,
    TextFormatter,
    job_fields,
    log_variables,
)
from stagepost.errors import ConfigurationError
from stagepost.model.context import JobIdentity, current_identity
from stagepost.model.job import LeasedJob


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.fixture
def _restored() -> Iterator[None]:
    """Puts logging back as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger(ATTEMPTS).setLevel(logging.NOTSET)


def record_of(message: str, *args: object, **fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("shop", logging.WARNING, __file__, 1, message, args, None)
    vars(record).update(fields)
    return record


def formatted(record: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(record)
    assert len(line.splitlines()) == 1
    read: dict[str, Any] = json.loads(line, parse_constant=pytest.fail)
    return read


def test_a_record_is_one_line_with_its_facts() -> None:
    record = record_of("%d orders", 3)
    record.created = 1767225600.25

    assert formatted(record) == {
        "time": "2026-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "shop",
        "message": "3 orders",
    }


@pytest.mark.parametrize("text", ["two\nlines", "\r\n\x00\x85\u2028", "half a pair \udc80", '"quoted" {}', "%s %d"])
def test_any_message_is_one_line(text: str) -> None:
    assert formatted(record_of("%s", text))["message"] == text


def test_arguments_that_do_not_fit_their_message_are_shown() -> None:
    assert formatted(record_of("%d orders", "three"))["message"] == "%d orders (its arguments do not fit: ('three',))"


def test_fields_of_the_user_are_included() -> None:
    circle: list[object] = []
    circle.append(circle)
    read = formatted(
        record_of(
            "hello", order=7, tags=["a", "b"], nothing=None, path=Unprintable(), share=float("nan"), circle=circle,
            by_pair={(1, 2): 3}, level="mine", exception="mine",
        )
    )  # fmt: skip

    assert (read["order"], read["tags"], read["nothing"]) == (7, ["a", "b"], None)
    assert (read["path"], read["share"], read["circle"]) == ("<Unprintable>", "nan", "[[...]]")
    assert (read["by_pair"], read["level"], read["exception"]) == ("{(1, 2): 3}", "warning", "mine")


def test_an_exception_is_a_field() -> None:
    try:
        raise ValueError("too small")
    except ValueError:
        record = record_of("failed")
        record.exc_info = sys.exc_info()

    read = formatted(record)

    assert read["exception"].startswith("Traceback (most recent call last):")
    assert read["exception"].endswith("ValueError: too small")


def test_the_filter_adds_the_ids_of_the_current_job() -> None:
    record = record_of("hello")
    token = current_identity.set(JobIdentity("j-1", "mail", 2, "slow"))
    try:
        with traced(trace_id="t-1"):
            JobContextFilter().filter(record)
    finally:
        current_identity.reset(token)

    read = formatted(record)
    assert {name: read[name] for name in ("job_id", "task_id", "task", "attempt", "queue", "trace_id")} == {
        "job_id": "j-1", "task_id": "j-1", "task": "mail", "attempt": 2, "queue": "slow", "trace_id": "t-1",
    }  # fmt: skip
    assert "user_id" not in read
    assert vars(record)["user_id"] is None
    assert TextFormatter().format(record).endswith(" shop: hello [job=j-1 attempt=2 trace=t-1]")


def test_a_text_without_a_filter_has_no_ids() -> None:
    assert TextFormatter().format(record_of("hello")).endswith(" shop: hello")


def test_the_filter_keeps_the_ids_of_a_record_about_another_job() -> None:
    record = record_of("job j-2 failed", job_id="j-2", attempt=1, user_id="ada")
    token = current_identity.set(JobIdentity("j-1", "mail", 2, "slow"))
    try:
        JobContextFilter().filter(record)
        JobContextFilter().filter(record)  # of another handler
    finally:
        current_identity.reset(token)

    fields = vars(record)
    assert (fields["job_id"], fields["attempt"], fields["task"], fields["user_id"]) == ("j-2", 1, None, "ada")
    assert TextFormatter().format(record).endswith(" shop: job j-2 failed [user=ada]"), "its message names the job"


@pytest.mark.usefixtures("_restored")
def test_completed_attempts_are_logged_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger(ATTEMPTS)

    configure_logging()
    assert not log.isEnabledFor(logging.INFO)
    assert logging.getLogger("stagepost.worker").isEnabledFor(logging.INFO)
    assert log_variables() == {"STAGEPOST_LOG_FORMAT": "text"}

    configure_logging("INFO", format="json")
    assert log.isEnabledFor(logging.INFO)
    assert log_variables() == {"STAGEPOST_LOG_FORMAT": "json", "STAGEPOST_LOG_LEVEL": "info"}
    log.info("hello")

    assert json.loads(capsys.readouterr().err)["message"] == "hello"


@pytest.mark.usefixtures("_restored")
def test_a_level_or_format_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="log level is 'loud': it must be one of debug, info, "):
        configure_logging("loud")
    with pytest.raises(ConfigurationError, match="log format is 'xml': it must be one of text, json"):
        configure_logging(format="xml")


def test_a_job_with_unreadable_trace_ids_can_be_logged() -> None:
    job = LeasedJob("j-1", "mail", "slow", 2, 0, 0, 5, 0, 0, 0, "{}", '{"trace_id": 7', None, None, "me")

    assert job_fields(job) == {
        "job_id": "j-1", "task": "mail", "attempt": 2, "queue": "slow",
        "trace_id": None, "correlation_id": None, "user_id": None,
    }  # fmt: skip
