"""What jobs give as JSON, checked against what their task declares: results, and progress on the way there."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from stagepost.errors import PayloadError, PayloadTooLarge
from stagepost.model import json_values
from stagepost.model.json_values import Limits

__all__ = [
    "check_progress",
    "check_result",
    "decode_progress",
    "decode_result",
    "encode_progress",
    "encode_result",
]

PROGRESS_LIMITS = Limits(max_bytes=10_240)
"""Progress is a sign, written again and again, and with the leases of all jobs of a worker."""
_DECLARED = {"result": "annotation", "progress": "declared type"}


def encode_result(value: object, *, annotation: Any, limits: Limits) -> str | None:
    """Encode what a handler returned; None for None.

    It must be readable as `annotation`, but may be of another type: the work is done by now, and refusing
    a tuple where a list was promised would help nobody. `typing.Any` where there is no annotation.
    """
    return None if value is None else _encode("result", value, annotation, limits)


def check_result(text: bytes, *, annotation: Any, limits: Limits) -> str | None:
    """Check a result that another program wrote as JSON as if a handler had returned it; None for null.

    Where a handler may return None whatever it promised, another program may not: it has left the result out.
    """
    if len(text) > limits.max_bytes:
        raise PayloadTooLarge("result", len(text), limits.max_bytes)
    try:
        value = msgspec.json.decode(text)
        if value is None:
            _decoder(annotation).decode(b"null")
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"its result does not fit `{json_values.name_of(annotation)}`: {error}.") from error
    return encode_result(value, annotation=annotation, limits=limits)


def decode_result(text: str | None, annotation: Any) -> Any:
    """Turn a stored result back into what the annotation says; None stays None."""
    return _decode("result", text, annotation)


def encode_progress(value: object, *, annotation: Any) -> str:
    """Encode how far a handler is; it must be readable as `annotation`, as a result must."""
    if value is None:
        raise PayloadError("progress is None, which says nothing: report a value.")
    return _encode("progress", value, annotation, PROGRESS_LIMITS)


def check_progress(text: bytes, *, annotation: Any) -> str | None:
    """Check progress that another program wrote as JSON as if a handler had reported it; None for null."""
    if len(text) > PROGRESS_LIMITS.max_bytes:
        raise _too_large("progress", len(text), PROGRESS_LIMITS)
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"its progress cannot be read: {error}.") from error
    return None if value is None else encode_progress(value, annotation=annotation)


def decode_progress(text: str | None, annotation: Any) -> Any:
    """Turn stored progress back into what the task declared; None stays None."""
    return _decode("progress", text, annotation)


def _encode(what: str, value: object, annotation: Any, limits: Limits) -> str:
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
                f"`{json_values.name_of(annotation)}`: {error}. Correct that or the value."
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
            f"If that changed since the job ran, read the {what} as `typing.Any`."
        ) from error


def _too_large(what: str, size: int, limits: Limits) -> PayloadTooLarge:
    return PayloadTooLarge(what, size, limits.max_bytes, can_be_raised=limits is not PROGRESS_LIMITS)


@lru_cache(maxsize=1024)
def _decoder(annotation: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(annotation, dec_hook=json_values.from_json)
