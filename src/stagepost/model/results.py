"""Encodes and decodes results and progress as JSON, checked against the types that the task declares."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from stagepost.errors import PayloadError, PayloadTooLarge
from stagepost.model import json_values
from stagepost.model.json_values import PayloadLimits

__all__ = [
    "check_progress",
    "check_result",
    "decode_progress",
    "decode_result",
    "encode_progress",
    "encode_result",
]

PROGRESS_LIMITS = PayloadLimits(max_bytes=10_240)
"""Small, because progress is written often and together with the leases of all jobs of a worker."""
_DECLARED = {"result": "annotation", "progress": "declared type"}


def encode_result(value: object, *, annotation: Any, limits: PayloadLimits) -> str | None:
    """Encode a handler's return value; None for None, if the annotation allows that.

    It must be decodable as `annotation` (`typing.Any` if there is none), but may have another type: the work
    is already done, and refusing a tuple instead of a list would help nobody.
    """
    if value is not None:
        return _encode("result", value, annotation, limits)
    if not _takes_none(annotation):
        raise PayloadError(
            f"the result is None, which does not fit the annotation `{json_values.name_of(annotation)}`. "
            f"Return a value, or annotate the task with `| None`."
        )
    return None


def check_result(text: bytes, *, annotation: Any, limits: PayloadLimits) -> str | None:
    """Check JSON from another program like a handler's return value; None for null."""
    if len(text) > limits.max_bytes:
        raise PayloadTooLarge("result", len(text), limits.max_bytes)
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"its result does not fit `{json_values.name_of(annotation)}`: {error}.") from error
    return encode_result(value, annotation=annotation, limits=limits)


def decode_result(text: str | None, annotation: Any) -> Any:
    """Decode a stored result as the annotation; None stays None."""
    return _decode("result", text, annotation)


def encode_progress(value: object, *, annotation: Any) -> str:
    """Encode a handler's progress, which must be decodable as `annotation`, like a result."""
    if value is None:
        raise PayloadError("progress is None. Report a value.")
    return _encode("progress", value, annotation, PROGRESS_LIMITS)


def check_progress(text: bytes, *, annotation: Any) -> str | None:
    """Check JSON from another program like a handler's progress; None for null."""
    if len(text) > PROGRESS_LIMITS.max_bytes:
        raise _too_large("progress", len(text), PROGRESS_LIMITS)
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"its progress cannot be read: {error}.") from error
    return None if value is None else encode_progress(value, annotation=annotation)


def decode_progress(text: str | None, annotation: Any) -> Any:
    """Decode stored progress as the type that the task declares; None stays None."""
    return _decode("progress", text, annotation)


def _encode(what: str, value: object, annotation: Any, limits: PayloadLimits) -> str:
    unencodable = None
    try:
        encoded = json_values.ENCODER.encode(value)
        if len(encoded) > limits.max_bytes:
            raise _too_large(what, len(encoded), limits)
        if b"null" in encoded or json_values.may_break_limits(encoded, limits, wrapper_depth=0):
            unencodable = json_values.broken_limit(value, limits)
        if not unencodable:
            _decoder(annotation).decode(encoded)
            return encoded.decode()
    except (TypeError, ValueError, RecursionError) as error:
        unencodable = json_values.why_not_encodable(value, limits)
        if not unencodable:
            raise PayloadError(
                f"{what} of type {type(value).__name__} does not fit the {_DECLARED[what]} "
                f"`{json_values.name_of(annotation)}`: {error}. Correct one of them."
            ) from error
    raise PayloadError(f"the {what} {unencodable}.")


def _decode(what: str, text: str | None, annotation: Any) -> Any:
    if text is None:
        return None
    try:
        return _decoder(annotation).decode(text)
    except (ValueError, RecursionError) as error:
        raise PayloadError(
            f"stored {what} does not fit the {_DECLARED[what]} `{json_values.name_of(annotation)}`: {error}. "
            f"If the type changed after the job ran, read the {what} as `typing.Any`."
        ) from error


def _too_large(what: str, size: int, limits: PayloadLimits) -> PayloadTooLarge:
    return PayloadTooLarge(what, size, limits.max_bytes, can_be_raised=limits is not PROGRESS_LIMITS)


@lru_cache(maxsize=1024)
def _decoder(annotation: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(annotation, dec_hook=json_values.from_json)


@lru_cache(maxsize=1024)
def _takes_none(annotation: Any) -> bool:
    try:
        _decoder(annotation).decode(b"null")
    except ValueError:
        return False
    return True
