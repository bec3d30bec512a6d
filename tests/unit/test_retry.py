"""Which errors are retried, after which delay, and how they are described."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from stagepost.errors import (
    ConfigurationError,
    PayloadError,
    PayloadTooLarge,
    Permanent,
    Retryable,
    StoreUnavailable,
)
from stagepost.model.retry import MAX_ERROR_LENGTH, MAX_TRACEBACK_LENGTH, RetryPolicy, describe_error

RANDOM = Random(1)  # noqa: S311 - seeded so that a failure repeats
STEADY = RetryPolicy(jitter=0)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


class MarkedError(Exception):
    def __init__(self, retryable: Any) -> None:
        super().__init__()
        self.retryable = retryable


class AwkwardError(Exception):
    """As unhelpful as an exception can be."""

    @property
    def retryable(self) -> bool:
        raise RuntimeError("no request has been made")

    response = retry_after = retryable

    def __str__(self) -> str:
        raise RuntimeError("no message either")


class Response:
    def __init__(self, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class BrokenHeaders:
    def get(self, name: str) -> str:
        raise RuntimeError(name)


class HttpError(Exception):
    def __init__(self, response: Any) -> None:
        super().__init__()
        self.response = response


# Delays


def test_the_delay_doubles_from_the_first_to_the_longest() -> None:
    delays = [STEADY.delay(failures, random=RANDOM).total_seconds() for failures in (1, 2, 3, 4, 12, 13, 14)]

    assert delays == [1, 2, 4, 8, 2_048, 3_600, 3_600]


def test_no_delay_is_under_the_minimum() -> None:
    hasty = RetryPolicy(first_delay=seconds(0.01), jitter=0)

    assert hasty.delay(1, random=RANDOM) == seconds(1)
    assert hasty.delay(8, random=RANDOM) == seconds(1.28)


def test_a_first_delay_of_zero_becomes_the_minimum() -> None:
    assert RetryPolicy(first_delay=seconds(0), jitter=0).delay(9, random=RANDOM) == seconds(1)
    assert RetryPolicy(first_delay=seconds(0), minimum_delay=seconds(0), jitter=0).delay(9, random=RANDOM) == seconds(0)


def test_a_factor_of_one_is_a_constant_delay() -> None:
    assert RetryPolicy(first_delay=seconds(7), factor=1, jitter=0).delay(10**9, random=RANDOM) == seconds(7)


@pytest.mark.parametrize("failures", [1_025, 10**6, 10**18])
def test_a_huge_number_of_failures_does_not_overflow(failures: int) -> None:
    assert STEADY.delay(failures, random=RANDOM) == timedelta(hours=1)


def test_jitter_only_adds() -> None:
    policy = RetryPolicy(first_delay=seconds(100), jitter=0.5)

    delays = [policy.delay(1, random=RANDOM) for _ in range(1_000)]

    assert min(delays) >= seconds(100)
    assert max(delays) < seconds(150)
    assert max(delays) - min(delays) > seconds(45)


def test_the_error_may_say_how_long_to_wait() -> None:
    assert STEADY.delay_after(Retryable(after=30), 1, random=RANDOM) == seconds(30)
    assert STEADY.delay_after(ValueError(), 3, random=RANDOM) == seconds(4)


# Classes of errors


@pytest.mark.parametrize(
    ("error", "is_retryable"),
    [
        (Retryable(), True),
        (Permanent(), False),
        (MarkedError(retryable=True), True),
        (MarkedError(retryable=False), False),
        (OSError(), True),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (StoreUnavailable(), True),
        (PayloadError(), False),
        (PayloadTooLarge("result", 2, 1), False),
        (msgspec.ValidationError(), False),
    ],
)
@pytest.mark.parametrize("unknown_errors", ["retry", "permanent"])
def test_known_errors_do_not_depend_on_the_policy(error: Exception, is_retryable: bool, unknown_errors: Any) -> None:
    assert RetryPolicy(unknown_errors=unknown_errors).is_retryable(error) is is_retryable


@pytest.mark.parametrize("error", [ValueError(), KeyError(), SystemExit(), MarkedError("maybe"), AwkwardError()])
def test_unknown_errors_follow_the_policy(error: BaseException) -> None:
    assert RetryPolicy(unknown_errors="retry").is_retryable(error)
    assert not RetryPolicy(unknown_errors="permanent").is_retryable(error)


def test_the_tasks_own_lists_override_the_built_in_rules() -> None:
    policy = RetryPolicy(retry_on=(PayloadError,), permanent_on=(OSError,))

    assert policy.is_retryable(PayloadTooLarge("result", 2, 1))
    assert not policy.is_retryable(ConnectionResetError())


def test_the_type_closest_to_the_error_wins() -> None:
    policy = RetryPolicy(retry_on=(FileNotFoundError, LookupError), permanent_on=(OSError, KeyError))

    assert policy.is_retryable(FileNotFoundError())
    assert not policy.is_retryable(PermissionError())
    assert policy.is_retryable(IndexError())
    assert not policy.is_retryable(KeyError())


def test_the_errors_own_attribute_overrides_the_lists() -> None:
    policy = RetryPolicy(retry_on=(MarkedError, Permanent), permanent_on=(Retryable,))

    assert not policy.is_retryable(MarkedError(retryable=False))
    assert not policy.is_retryable(Permanent())
    assert policy.is_retryable(Retryable())


def test_a_group_is_retryable_if_all_its_members_are() -> None:
    both, mixed = [OSError(), TimeoutError()], [OSError(), ExceptionGroup("", [Permanent()])]

    assert RetryPolicy(unknown_errors="permanent").is_retryable(ExceptionGroup("several", both))
    assert not RetryPolicy().is_retryable(ExceptionGroup("several", mixed))
    assert RetryPolicy(retry_on=(ExceptionGroup,)).is_retryable(ExceptionGroup("several", mixed))


# Retry-After


def with_attribute(name: str, value: Any) -> Exception:
    error = Exception()
    setattr(error, name, value)
    return error


SENT = "Sun, 25 Oct 2026 01:00:00 GMT"


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (Retryable(after=seconds(90)), 90),
        (Retryable(after=0), 0),
        (Retryable(after=86_400), 86_400),
        (with_attribute("after", seconds(5)), 5),
        (with_attribute("retry_after", 7), 7),
        (with_attribute("retry_after", 0.1), 1),
        (with_attribute("retry_after", 1e300), 3_600),
        (with_attribute("retry_after", 10**30), 3_600),
        (with_attribute("headers", {"Retry-After": "8"}), 8),
        (HttpError(Response(Retry_After="9")), 9),
        (HttpError(Response(retry_after=" 9 ")), 9),
        (HttpError(Response(Retry_After="9" * 5_000)), 3_600),
        (HttpError(Response(Retry_After="Sun, 25 Oct 2026 01:02:00 GMT", Date=SENT)), 120),
        (HttpError(Response(Retry_After="Sun, 25 Oct 2026 01:00:00 GMT", Date=SENT)), 1),
        (HttpError(Response(Retry_After="Mon, 25 Oct 2027 01:00:00 GMT", Date=SENT)), 3_600),
    ],
)
def test_an_error_can_ask_for_a_delay(error: Exception, asked: float) -> None:
    assert RetryPolicy().retry_after(error) == seconds(asked)


@pytest.mark.parametrize(
    "error",
    [
        Exception(),
        Retryable(),
        AwkwardError(),
        with_attribute("retry_after", True),
        with_attribute("retry_after", "soon"),
        with_attribute("retry_after", float("nan")),
        with_attribute("retry_after", float("inf")),
        with_attribute("retry_after", -3),
        with_attribute("retry_after", lambda: 3),
        with_attribute("headers", "Retry-After: 3"),
        with_attribute("headers", {"Retry-After": 3}),
        with_attribute("headers", BrokenHeaders()),
        HttpError(None),
        HttpError(Response()),
        HttpError(Response(Retry_After="")),
        HttpError(Response(Retry_After="-5")),
        HttpError(Response(Retry_After="²")),
        HttpError(Response(Retry_After="soon", Date=SENT)),
        HttpError(Response(Retry_After=SENT)),
        HttpError(Response(Retry_After=SENT, Date="today")),
        HttpError(Response(Retry_After="Sun, 25 Oct 2026 00:59:59 GMT", Date=SENT)),
        HttpError(Response(Retry_After="Sun, 25 Oct 2026 01:02:00 -0000", Date=SENT)),
        HttpError(Response(Retry_After="Sun, 25 Oct 99999 01:02:00 GMT", Date=SENT)),
    ],
)
def test_an_invalid_delay_is_ignored(error: Exception) -> None:
    assert RetryPolicy().retry_after(error) is None


# What is recorded


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - the test looks at it
        return caught


def test_an_error_is_described_by_type_and_message_and_traceback() -> None:
    summary, trace = describe_error(raised(ValueError("no such voice")))

    assert summary == "ValueError: no such voice"
    assert trace.startswith("Traceback (most recent call last):")
    assert trace.endswith("ValueError: no such voice\n")


def test_an_error_without_a_message_is_its_type() -> None:
    assert describe_error(KeyboardInterrupt())[0] == "KeyboardInterrupt"


def test_an_error_that_cannot_be_printed_is_still_described() -> None:
    assert describe_error(AwkwardError())[0] == "AwkwardError: <the message cannot be printed>"


def test_what_a_database_cannot_store_is_escaped() -> None:
    summary, trace = describe_error(raised(ValueError("a\0b \udc80 é")))

    assert summary == "ValueError: a\\x00b \\udc80 é"
    assert "\0" not in trace
    assert trace.encode()


def test_long_texts_keep_their_start_and_end() -> None:
    summary, trace = describe_error(raised(ValueError("start " + "é" * 50_000 + " end")))

    assert summary.startswith("ValueError: start")
    assert summary.endswith("é end")
    assert "bytes left out" in summary
    assert MAX_ERROR_LENGTH - 4 <= len(summary.encode()) <= MAX_ERROR_LENGTH
    assert trace.startswith("Traceback")
    assert trace.endswith("é end\n")
    assert MAX_TRACEBACK_LENGTH - 4 <= len(trace.encode()) <= MAX_TRACEBACK_LENGTH


def test_endless_recursion_is_described_briefly() -> None:
    def again() -> None:
        again()

    with pytest.raises(RecursionError) as caught:
        again()

    assert len(describe_error(caught.value)[1]) < MAX_TRACEBACK_LENGTH


# Configuration


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "max_attempts is 0; it includes the first attempt"),
        ({"factor": 0.5}, "factor is 0.5"),
        ({"factor": float("nan")}, "factor is nan"),
        ({"jitter": -0.1}, "jitter is -0.1"),
        ({"jitter": 1.1}, "jitter is 1.1"),
        ({"jitter": float("nan")}, "jitter is nan"),
        ({"first_delay": "5s"}, "first_delay is '5s': it must be seconds as a number or a timedelta"),
        ({"first_delay": seconds(-1)}, "first_delay is -1 day"),
        ({"longest_delay": timedelta(days=366)}, "longest_delay is 366 days"),
        ({"first_delay": seconds(9), "longest_delay": seconds(8)}, "not less than first_delay"),
        ({"minimum_delay": timedelta(hours=2)}, "not less than first_delay"),
        ({"unknown_errors": "ignore"}, "unknown_errors is 'ignore'"),
        ({"retry_on": ("OSError",)}, "retry_on is ('OSError',): it must be a tuple of exception classes"),
        ({"permanent_on": (int,)}, "permanent_on is (<class 'int'>,): it must be a tuple"),
        ({"retry_on": (OSError,), "permanent_on": (OSError,)}, "OSError is in both retry_on and permanent_on"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        RetryPolicy(**options)

    assert message in str(refusal.value)
