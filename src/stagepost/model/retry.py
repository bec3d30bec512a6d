"""Retry policies: whether and when to try again after an error, and what to record about it."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from random import Random
from typing import Any, Literal

import msgspec

from stagepost.errors import ConfigurationError, PayloadError, Permanent, Retryable, StoreUnavailable, duration_of
from stagepost.model.backoff import backoff_seconds
from stagepost.model.option_types import check_types

__all__ = ["MAX_ERROR_LENGTH", "MAX_TRACEBACK_LENGTH", "RetryPolicy", "describe_error", "shortened_error"]

MAX_ERROR_LENGTH = 2_000
MAX_TRACEBACK_LENGTH = 20_000
"""Both limits are in bytes of UTF-8."""

LONGEST_POSSIBLE_DELAY = timedelta(days=365)

BUILT_IN_RETRYABLE = (Retryable, StoreUnavailable, OSError)
"""OSError covers TimeoutError and ConnectionError."""
BUILT_IN_PERMANENT = (Permanent, PayloadError, msgspec.ValidationError)

ErrorTypes = tuple[type[BaseException], ...]
ADVICE = {
    "retry_on": "A tuple of one class ends with a comma: retry_on=(ValueError,).",
    "permanent_on": "A tuple of one class ends with a comma: permanent_on=(ValueError,).",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and after which delay, a failed job is tried again.

    The delay is multiplied by `factor` after every failure, from `first_delay` up to `longest_delay`.
    `jitter` then adds up to that fraction of the delay, to spread retries of many jobs over time. The result
    is never below `minimum_delay`, and may exceed `longest_delay` by that fraction.
    """

    max_attempts: int = 5
    """Number of failures, including the first attempt's, after which the job becomes a dead letter."""
    first_delay: timedelta | float = timedelta(seconds=1)
    """The delay after the first failure."""
    longest_delay: timedelta | float = timedelta(hours=1)
    """The delay stops growing here."""
    minimum_delay: timedelta | float = timedelta(seconds=1)
    """The shortest delay that this policy computes; `Retryable(after=…)` may ask for a shorter one."""
    factor: float = 2.0
    """Multiplies the delay after every further failure; 1 keeps it constant."""
    jitter: float = 1.0
    """Maximum random addition, as a fraction of the delay from 0 to 1."""
    retry_on: ErrorTypes = ()
    """Errors after which the job is tried again."""
    permanent_on: ErrorTypes = ()
    """Errors that end the job as `failed` at once."""
    unknown_errors: Literal["retry", "permanent"] = "retry"
    """How to treat errors that no rule matches."""

    def __post_init__(self) -> None:
        check_types("retry option", self, advice=ADVICE)
        _check_counts(self)
        _check_delays(self)
        _check_error_types(self)

    def delay(self, failures: int, *, random: Random) -> timedelta:
        """Return how long to wait after this many failures, including the latest one."""
        seconds = max(self._growing_delay(failures), _seconds_in(self.minimum_delay))
        return timedelta(seconds=seconds * (1 + self.jitter * random.random()))

    def delay_after(self, error: BaseException, failures: int, *, random: Random) -> timedelta:
        """Return the delay that the error asks for, or else the policy's own."""
        asked = self.retry_after(error)
        return self.delay(failures, random=random) if asked is None else asked

    def is_retryable(self, error: BaseException) -> bool:
        """Return whether a later attempt may succeed; the first rule that applies decides.

        The rules, in order: `Retryable` and `Permanent`; a bool attribute `retryable` of the error; this
        policy's `retry_on` and `permanent_on`; the built-in rules (yes for I/O and timeouts, no for payloads and
        validation); for an exception group, whether all its members are retryable; `unknown_errors`. If two
        types in the lists match, the one closer to the error's own type wins.
        """
        if isinstance(error, Retryable | Permanent):
            return isinstance(error, Retryable)
        marked = _attribute(error, "retryable")
        if isinstance(marked, bool):
            return marked
        known = _verdict(error, retryable=self.retry_on, permanent=self.permanent_on)
        if known is None:
            known = _verdict(error, retryable=BUILT_IN_RETRYABLE, permanent=BUILT_IN_PERMANENT)
        if known is None and isinstance(error, BaseExceptionGroup):
            known = all(self.is_retryable(member) for member in error.exceptions)
        return self.unknown_errors == "retry" if known is None else known

    def retry_after(self, error: BaseException) -> timedelta | None:
        """Return the delay that the error asks for; None if it asks for none or the value is invalid.

        `Retryable(after=…)` comes from the task's author and is used unchanged. Values from outside, an
        attribute `after` or `retry_after` (seconds or a timedelta) or a response's `Retry-After` header, are
        kept between `minimum_delay` and `longest_delay`.
        """
        if isinstance(error, Retryable) and error.after is not None and error.after >= timedelta(0):
            return error.after
        for seconds in (
            _seconds(_attribute(error, "after")),
            _seconds(_attribute(error, "retry_after")),
            _seconds_in_headers(error),
        ):
            if seconds is not None:
                within = max(min(seconds, _seconds_in(self.longest_delay)), _seconds_in(self.minimum_delay))
                return timedelta(seconds=within)
        return None

    def _growing_delay(self, failures: int) -> float:
        first, longest = _seconds_in(self.first_delay), _seconds_in(self.longest_delay)
        return backoff_seconds(failures, first=first, longest=longest, factor=self.factor)


def describe_error(error: BaseException) -> tuple[str, str]:
    """Return "Type: message" and the traceback, as texts that every database can store.

    Long texts are shortened in the middle; a traceback keeps more of its end, where the error was raised.
    """
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - somebody else's __str__
        message = "<the message cannot be printed>"
    name = type(error).__qualname__
    summary = f"{name}: {message}" if message else name
    trace = "".join(traceback.format_exception(error))
    return (
        _shortened(summary, MAX_ERROR_LENGTH, kept_at_start=0.75),
        _shortened(trace, MAX_TRACEBACK_LENGTH, kept_at_start=0.25),
    )


def shortened_error(text: str) -> str:
    """Convert an error text from outside to one that every database can store."""
    return _shortened(text, MAX_ERROR_LENGTH, kept_at_start=0.75)


def _shortened(text: str, limit: int, *, kept_at_start: float) -> str:
    # PostgreSQL rejects NUL, and half a surrogate pair is not valid UTF-8.
    encoded = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")
    if len(encoded) <= limit:
        return encoded.decode()
    mark = f"\n… {len(encoded) - limit:,} bytes left out …\n".encode()
    start = int((limit - len(mark)) * kept_at_start)
    end = limit - len(mark) - start
    return (encoded[:start] + mark + encoded[-end:]).decode("utf-8", "ignore")


def _verdict(error: BaseException, *, retryable: ErrorTypes, permanent: ErrorTypes) -> bool | None:
    for ancestor in type(error).__mro__:
        if ancestor in retryable or ancestor in permanent:
            return ancestor in retryable
    return None


def _attribute(thing: object, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - somebody else's property
        return None


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(min(value, LONGEST_POSSIBLE_DELAY.total_seconds()))
    return None


def _seconds_in_headers(error: BaseException) -> float | None:
    """Find `Retry-After` where HTTP clients keep it: on the error's response, or on the error."""
    for holder in (_attribute(error, "response"), error):
        headers = _attribute(holder, "headers")
        asked = _header(headers, "Retry-After")
        if asked is None:
            continue
        if asked.isascii() and asked.isdigit():
            return _seconds(int(asked[:18]))
        return _seconds_between(_header(headers, "Date"), asked)
    return None


def _header(headers: Any, name: str) -> str | None:
    if not (isinstance(headers, Mapping) or hasattr(headers, "get")):
        return None
    try:
        value = headers.get(name) or headers.get(name.lower())
    except Exception:  # noqa: BLE001 - somebody else's mapping
        return None
    return value.strip() if isinstance(value, str) else None


def _seconds_between(sent: str | None, until: str) -> float | None:
    """Compute the delay from the server's own `Date`, because our clock may differ."""
    if sent is None:
        return None
    try:
        return _seconds(parsedate_to_datetime(until) - parsedate_to_datetime(sent))
    except (TypeError, ValueError, OverflowError):
        return None


def _check_counts(policy: RetryPolicy) -> None:
    if policy.max_attempts < 1:
        raise ConfigurationError(
            f"max_attempts is {policy.max_attempts}; it includes the first attempt, so it must be 1 or more."
        )
    if not 1 <= policy.factor <= 1_000:
        raise ConfigurationError(f"factor is {policy.factor}; it must be from 1 (constant delay) to 1,000.")
    if not 0 <= policy.jitter <= 1:
        raise ConfigurationError(f"jitter is {policy.jitter}; it is a fraction of the delay, from 0 to 1.")


def _check_delays(policy: RetryPolicy) -> None:
    for name in ("first_delay", "longest_delay", "minimum_delay"):
        delay = duration_of(getattr(policy, name), f"retry option {name}")
        object.__setattr__(policy, name, delay)
        if not timedelta(0) <= delay <= LONGEST_POSSIBLE_DELAY:
            raise ConfigurationError(f"{name} is {delay}; it must be from 0 to {LONGEST_POSSIBLE_DELAY}.")
    longest = _seconds_in(policy.longest_delay)
    if longest < max(_seconds_in(policy.first_delay), _seconds_in(policy.minimum_delay)) or not longest:
        raise ConfigurationError(
            f"longest_delay is {policy.longest_delay}; it must be more than 0 and not less than first_delay "
            f"({policy.first_delay}) and minimum_delay ({policy.minimum_delay})."
        )


def _seconds_in(delay: timedelta | float) -> float:
    return delay.total_seconds() if isinstance(delay, timedelta) else delay


def _check_error_types(policy: RetryPolicy) -> None:
    both = set(policy.retry_on) & set(policy.permanent_on)
    if both:
        names = ", ".join(sorted(kind.__qualname__ for kind in both))
        raise ConfigurationError(f"{names} is in both retry_on and permanent_on. Remove it from one of them.")
